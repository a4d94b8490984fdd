#!/bin/sh
# Plays stories in the simulator, and leaves what CI shows of them.
#
#   stories.sh STORIES...
#
# FENCELAB is the command with its module, OUT the directory for the reports, SCHEDULES how many schedules of each story are
# tried, and SEED chooses them: with another seed, as each night, other schedules are tried.
set -u
fencelab=${FENCELAB:-fencelab --module .}
out=${OUT:-out/fencelab}

$fencelab run "$@" --strategy random --schedules "${SCHEDULES:-500}" --seed "${SEED:-1}" --out "$out"
code=$?

# A job's summary, and marks at the files of the stories, where GitHub Actions runs this.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$out/summary.md" ]; then
	cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
	cat "$out/annotations.txt"
fi
exit "$code"
