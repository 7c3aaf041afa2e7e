#!/bin/sh
# A shell script that can be killed at any point and continues: sh examples/save_state.sh
#
# It works through a list. After each item it saves its state, as JSON, with `everstep checkpoint`; when that returns, the state is on disk.
# The next start asks for the saved state and skips the finished items. Any language that can call a program can do the same.
#
#   STOP_AFTER=2 sh examples/save_state.sh     kills itself after two items
#   sh examples/save_state.sh                  continues with the third
#   everstep log backup                        shows what happened; `everstep diff backup@1 backup@2` what changed
set -eu

everstep init --quiet # .everstep/store.db in this folder; an existing store is left unchanged

# Exit code 3 means that there is no such run yet. Anything else is trouble: show it, and don't begin from the start.
finished=$(everstep state backup finished 2>/dev/null) || case $? in
3) finished=0 ;;
*) everstep state backup finished; exit 1 ;;
esac
echo "$finished items are finished"

number=0
for item in letters photos music films; do
    number=$((number + 1))
    [ "$number" -gt "$finished" ] || continue
    echo "working on $item"
    printf '{"finished": %d, "last": "%s"}' "$number" "$item" | everstep checkpoint backup --note "$item" --quiet
    [ "$number" != "${STOP_AFTER:-}" ] || kill -9 $$
done

[ "$number" = "$finished" ] || everstep restore backup | everstep checkpoint backup --done --quiet
