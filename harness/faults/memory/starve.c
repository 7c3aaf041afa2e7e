/* Preloaded, it lets allocations fail: once armed, it counts them, and so many from the given one on get nothing. Needs glibc. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static long first, last, count;
static int armed, everyone;
static pthread_t victim;

static int fails(void)
{
    if (!armed || !(everyone || pthread_equal(pthread_self(), victim)))
        return 0;
    long mine = __sync_fetch_and_add(&count, 1);
    if (mine < first || mine >= last)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t many, size_t size)
{
    return fails() ? NULL : __libc_calloc(many, size);
}

void *realloc(void *old, size_t size)
{
    return size && fails() ? NULL : __libc_realloc(old, size);
}

/* From now on, in this thread or in all of them. */
void everstep_starve(long from, long times, int all)
{
    victim = pthread_self();
    everyone = all;
    count = 0;
    first = from;
    last = from + times;
    armed = 1;
}

/* Enough for all again; how many allocations there were. */
long everstep_feed(void)
{
    armed = 0;
    return count;
}
