/* Faults at the nth file call below one folder. Preloaded (LD_PRELOAD) before libc; armed and asked by shim.py through ctypes.

   A call is one that may change what is on disk, or make something appear there: opens, writes, syncs, renames, links, unlinks, folders,
   changes of size. (Reads are calls, too, if they are asked for.) Calls are counted from the moment of arming, by all threads together.
   At call N the process is killed, or the call fails, once or from then on. Writes through a mapping are not calls: the
   system keeps them whole or not at all when a process dies.

   A descriptor belongs to the folder if /proc says so, so nothing has to be remembered about who opened what. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { MAKE = 1, OPEN = 2, WRITE = 4, SYNC = 8, NAME = 16, UNLINK = 32, SIZE = 64, READ = 128 };
enum action { COUNT, KILL, FAIL };
enum moment { BEFORE, HALF, AFTER };

static char folder[4096];
static size_t length;
static int armed, action, moment, error, lasting, kinds, trace = -1;
static long first, calls, fired;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }
#define REAL(result, name, ...) static result (*real)(__VA_ARGS__); if (!real) real = (result (*)(__VA_ARGS__)) next(#name)

static int below(const char *path) {
    return path && !strncmp(path, folder, length) && (path[length] == '/' || path[length] == 0);
}

static int of_folder(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    path[n < 0 ? 0 : n] = 0;
    return n > 0 && below(path);
}

/* Counts one call; true if the fault is to happen at it. */
static int hit(int kind, const char *name, const char *path) {
    if (!(kinds & kind)) return 0;
    long number = __sync_add_and_fetch(&calls, 1);
    if (trace >= 0) dprintf(trace, "%ld %s %s\n", number, name, path + length);
    if (action == COUNT || first == 0 || number < first || (number > first && !lasting)) return 0;
    __sync_fetch_and_add(&fired, 1);
    return 1;
}

static void die(void) {
    for (;;) kill(getpid(), SIGKILL);
}

/* What a call that is hit does; `half` and `whole` are the real call on a part and on all of it. */
#define FAULT(half, whole)                                                \
    do {                                                                  \
        if (moment == HALF) { half; }                                     \
        else if (moment == AFTER && action == KILL) { whole; }            \
        if (action == KILL) die();                                        \
        errno = error;                                                    \
        return -1;                                                        \
    } while (0)

#define BY_FD(kind, name, fd, half, whole)                                \
    do {                                                                  \
        char path[4096];                                                  \
        if (armed && of_folder(fd, path, sizeof path) && hit(kind, name, path)) FAULT(half, whole); \
        return whole;                                                     \
    } while (0)

#define BY_PATH(kind, name, path, whole)                                  \
    do {                                                                  \
        if (armed && below(path) && hit(kind, name, path)) FAULT((void) 0, whole); \
        return whole;                                                     \
    } while (0)

/* A disk without space still opens what is there. */
static int makes(const char *path, int flags) { return flags & O_CREAT && access(path, F_OK) ? MAKE : OPEN; }

#define OPENER(name)                                                      \
    int name(const char *path, int flags, ...) {                          \
        REAL(int, name, const char *, int, ...);                          \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        BY_PATH(makes(path, flags), "open", path, real(path, flags, mode)); \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                                   \
    int name(int at, const char *path, int flags, ...) {                  \
        REAL(int, name, int, const char *, int, ...);                     \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        BY_PATH(makes(path, flags), "open", path, real(at, path, flags, mode)); \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

ssize_t write(int fd, const void *data, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    BY_FD(WRITE, "write", fd, (void) !real(fd, data, n / 2), real(fd, data, n));
}

#define WRITER_AT(name, offset)                                           \
    ssize_t name(int fd, const void *data, size_t n, offset at) {         \
        REAL(ssize_t, name, int, const void *, size_t, offset);           \
        BY_FD(WRITE, "pwrite", fd, (void) !real(fd, data, n / 2, at), real(fd, data, n, at)); \
    }
WRITER_AT(pwrite, off_t)
WRITER_AT(pwrite64, off64_t)

int fsync(int fd) {
    REAL(int, fsync, int);
    BY_FD(SYNC, "fsync", fd, (void) 0, real(fd));
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    BY_FD(SYNC, "fdatasync", fd, (void) 0, real(fd));
}

#define SIZER(name, offset)                                               \
    int name(int fd, offset size) {                                       \
        REAL(int, name, int, offset);                                     \
        BY_FD(SIZE, "ftruncate", fd, (void) 0, real(fd, size));           \
    }
SIZER(ftruncate, off_t)
SIZER(ftruncate64, off64_t)

#define RESERVER(name, offset)                                            \
    int name(int fd, offset at, offset size) {                            \
        REAL(int, name, int, offset, offset);                             \
        char path[4096];                                                  \
        if (armed && of_folder(fd, path, sizeof path) && hit(SIZE, "fallocate", path)) { \
            if (action == KILL) die();                                    \
            return error;                                                 \
        }                                                                 \
        return real(fd, at, size);                                        \
    }
RESERVER(posix_fallocate, off_t)
RESERVER(posix_fallocate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    BY_PATH(NAME, "rename", to, real(from, to));
}

int renameat(int a, const char *from, int b, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    BY_PATH(NAME, "rename", to, real(a, from, b, to));
}

int link(const char *from, const char *to) {
    REAL(int, link, const char *, const char *);
    BY_PATH(NAME, "link", to, real(from, to));
}

int linkat(int a, const char *from, int b, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    BY_PATH(NAME, "link", to, real(a, from, b, to, flags));
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    BY_PATH(UNLINK, "unlink", path, real(path));
}

int unlinkat(int at, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    BY_PATH(UNLINK, "unlink", path, real(at, path, flags));
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    BY_PATH(MAKE, "mkdir", path, real(path, mode));
}

ssize_t read(int fd, void *data, size_t n) {
    REAL(ssize_t, read, int, void *, size_t);
    if (!(kinds & READ)) return real(fd, data, n);
    BY_FD(READ, "read", fd, (void) 0, real(fd, data, n));
}

#define READER_AT(name, offset)                                           \
    ssize_t name(int fd, void *data, size_t n, offset at) {               \
        REAL(ssize_t, name, int, void *, size_t, offset);                 \
        if (!(kinds & READ)) return real(fd, data, n, at);                \
        BY_FD(READ, "pread", fd, (void) 0, real(fd, data, n, at));        \
    }
READER_AT(pread, off_t)
READER_AT(pread64, off64_t)

/* For shim.py. */

void everstep_arm(const char *below_path, long call, int what, int when, int number, int stays, int which, int trace_fd) {
    snprintf(folder, sizeof folder, "%s", below_path);
    length = strlen(folder);
    first = call; action = what; moment = when; error = number; lasting = stays; kinds = which; trace = trace_fd;
    calls = fired = 0;
    armed = 1;
}

void everstep_disarm(void) { armed = 0; action = COUNT; trace = -1; }
int everstep_error(void) { return error; }
int everstep_lasts(void) { return armed && lasting; }
long everstep_calls(void) { return calls; }
long everstep_fired(void) { return fired; }
