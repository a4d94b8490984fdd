#!/bin/sh
# Plays stories, and leaves what CI shows of them: random schedules in the simulator, or each once with --backend lab.
#
#   stories.sh STORIES... [FLAGS]
#
# FENCELAB is the command, OUT the directory for the reports, SCHEDULES how many schedules of each story are tried, and SEED
# chooses them: with another seed, as each night, other schedules are tried.
set -u
out=${OUT:-out/fencelab}
case " $* " in
*" --backend "*) ;;
*) set -- "$@" --strategy random --schedules "${SCHEDULES:-500}" --seed "${SEED:-1}" ;;
esac

${FENCELAB:-fencelab} run "$@" --out "$out"
code=$?

# A job's summary, and marks at the files of the stories, where GitHub Actions runs this.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$out/summary.md" ]; then
	cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
	cat "$out/annotations.txt"
fi
exit "$code"
