#!/usr/bin/env bash
#
# tools/bazel on machines that exist only as stubs: a folder with a dpkg-query, an apt-get, a sudo, an id and a bazel
# that write down how they were called. PATH holds that folder alone, so the real ones are out of reach.
set -uo pipefail

readonly WRAPPER="${PWD}/tools/bazel"
readonly REAL_TOOLS=(bash cat env mkdir mktemp rm true)
failures=0

fail() {
  echo "FAILED: ${machine_name}: $1" >&2
  sed 's/^/    /' "${machine}/calls" "${machine}/stderr" >&2
  failures=$((failures + 1))
}

# stub NAME: a program of the machine that adds its name and arguments to `calls` and runs the body on stdin.
stub() {
  { printf '#!/usr/bin/env bash\necho "%s $*" >>"%s/calls"\n' "$1" "${machine}"; cat; } >"${machine}/bin/$1"
  chmod +x "${machine}/bin/$1"
}

# new_machine NAME INSTALLED...: a machine of a plain user, with those packages, no sudo, and a bazel.
new_machine() {
  machine_name="$1"
  machine="${TEST_TMPDIR}/$1"
  shift
  mkdir -p "${machine}/bin"
  : >"${machine}/calls"
  printf '%s\n' "$@" >"${machine}/installed"
  local tool
  for tool in "${REAL_TOOLS[@]}"; do
    ln -s "$(type -P "${tool}")" "${machine}/bin/${tool}"
  done
  mkdir "${machine}/home"
  stub id <<<'echo 1000'
  stub sleep <<<''
  stub bazel <<<'echo "real bazel at ${HOME}"'
  # As the real one: prints `installed:NAME ` for each that is, complains about the others.
  stub dpkg-query <<'STUB'
here="${0%/bin/*}"
status=0
for name in "${@:3}"; do
  if [[ " $(<"${here}/installed") " == *[[:space:]]"${name}"[[:space:]]* ]]; then
    printf 'installed:%s ' "${name}"
  else
    echo "no packages found matching ${name}" >&2
    status=1
  fi
done
exit "${status}"
STUB
}

# The machine's apt-get installs what it is asked for, as soon as `update` was called; `update_needed` says whether. With
# `offline` the first two updates fail.
add_apt_get() {
  : >"${machine}/$1"
  stub apt-get <<'STUB'
here="${0%/bin/*}"
case " $* " in
  *" update "*)
    for try in one two; do
      if [[ -e "${here}/offline" && ! -e "${here}/failed_${try}" ]]; then : >"${here}/failed_${try}"; exit 100; fi
    done
    rm -f "${here}/update_needed" ;;
  *" install "*) if [[ -e "${here}/update_needed" ]]; then echo "Unable to locate package" >&2; exit 100; fi ;;
esac
echo "chatter of apt-get"
STUB
}

# run_wrapper [VARIABLE=VALUE...] -- ARGUMENT...: sets `status`, and the files stdout and stderr.
run_wrapper() {
  local -a variables=()
  while [[ "$1" != -- ]]; do
    variables+=("$1")
    shift
  done
  shift
  env -i PATH="${machine}/bin" TMPDIR="${TEST_TMPDIR}" HOME="${machine}/home" "${variables[@]}" "${WRAPPER}" "$@" \
    >"${machine}/stdout" 2>"${machine}/stderr" </dev/null
  status=$?
}

expect_status() { [[ "${status}" == "$1" ]] || fail "exit status ${status}, wanted $1"; }
expect_in() { grep -qF -- "$2" "${machine}/$1" || fail "$1 lacks: $2"; }
expect_not_in() { ! grep -qF -- "$2" "${machine}/$1" || fail "$1 has: $2"; }
expect_silent() { [[ ! -s "${machine}/stderr" ]] || fail "wrote to stderr"; }

source tools/build/packages.sh
readonly ALL=("${BUILD_PACKAGES[@]}")
readonly ALL_BUT_TWO=("${ALL[@]:2}")  # without the first two
readonly TWO="${ALL[0]} ${ALL[1]}"

new_machine everything_installed "${ALL[@]}"
run_wrapper -- test //...
expect_status 0
expect_silent
expect_in stdout "real bazel"
expect_in calls "bazel test //..."
expect_not_in calls "apt-get"

new_machine launcher_calls_wrapper "${ALL[@]}"
stub real_bazel <<<'echo "checked=${MESHWRIGHT_PACKAGES_CHECKED:-}"'
stub bazel <<<'exit 7'
run_wrapper BAZEL_REAL="${machine}/bin/real_bazel" -- info
expect_status 0
expect_in calls "real_bazel info"
expect_in stdout "checked="
expect_not_in stdout "checked=1"

# The launcher on PATH finds tools/bazel and calls it: one check of the packages, no endless loop.
new_machine wrapper_calls_launcher "${ALL[@]}"
stub real_bazel <<<''
stub bazel <<<"BAZEL_REAL='${machine}/bin/real_bazel' exec '${WRAPPER}' \"\$@\""
run_wrapper -- build //ir
expect_status 0
expect_in calls "real_bazel build //ir"
[[ "$(grep -c dpkg-query "${machine}/calls")" == 1 ]] || fail "the packages were not checked once"

new_machine tools_folder_on_path "${ALL[@]}"
run_wrapper PATH="${WRAPPER%/*}:${machine}/bin" -- build
expect_status 0
expect_in calls "bazel build"

new_machine user_without_sudo "${ALL_BUT_TWO[@]}"
add_apt_get up_to_date
run_wrapper -- build
expect_status 1
expect_in stderr "apt-get install ${TWO}"
expect_not_in calls "apt-get"
expect_not_in calls "bazel build"

new_machine user_with_sudo_that_asks "${ALL_BUT_TWO[@]}"
add_apt_get up_to_date
stub sudo <<<'exit 1'
run_wrapper -- build
expect_status 1
expect_in stderr "apt-get install ${TWO}"
expect_not_in calls "apt-get"

new_machine user_with_sudo "${ALL_BUT_TWO[@]}"
add_apt_get up_to_date
stub sudo <<<'shift; exec "$@"'
run_wrapper -- build
expect_status 0
expect_in calls "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get"
expect_in stderr "installing ${TWO}"
expect_not_in stderr "chatter"
expect_in calls "bazel build"

new_machine root "${ALL_BUT_TWO[@]}"
add_apt_get up_to_date
stub id <<<'echo 0'
run_wrapper -- build
expect_status 0
grep -q "^apt-get .* install ${TWO}\$" "${machine}/calls" || fail "apt-get was not asked for just the missing two"
expect_not_in calls "update"
expect_in stderr "installing ${TWO}"
expect_not_in stdout "chatter"
expect_in calls "bazel build"

new_machine root_of_a_new_machine "${ALL_BUT_TWO[@]}"
add_apt_get update_needed
stub id <<<'echo 0'
run_wrapper -- build
expect_status 0
expect_in calls "update"
expect_not_in stderr "Unable to locate"
expect_in calls "bazel build"

new_machine network_that_comes_back "${ALL_BUT_TWO[@]}"
add_apt_get update_needed
: >"${machine}/offline"
stub id <<<'echo 0'
run_wrapper -- build
expect_status 0
[[ "$(grep -c '^sleep ' "${machine}/calls")" == 2 ]] || fail "wanted two pauses"
expect_in stderr "once more in 10 s"
expect_not_in stderr "Unable to locate"
expect_in calls "bazel build"

new_machine root_without_network "${ALL_BUT_TWO[@]}"
stub apt-get <<<'echo "Could not resolve the host" >&2; exit 100'
stub id <<<'echo 0'
run_wrapper -- build
expect_status 1
expect_in stderr "Could not resolve the host"
expect_in stderr "could not install ${TWO}"
expect_not_in calls "bazel build"

# Where HOME cannot be made, because a file is in its place, or is read-only (which does not stop root).
new_machine home_that_cannot_be_written "${ALL[@]}"
: >"${machine}/file"
run_wrapper HOME="${machine}/file/home" -- build
expect_status 0
expect_in stdout "real bazel at ${TEST_TMPDIR}/meshwright-${UID}"
expect_in stderr "${machine}/file/home cannot be written; what is built is kept in ${TEST_TMPDIR}/meshwright-${UID}"

new_machine home_that_is_made "${ALL[@]}"
run_wrapper HOME="${machine}/home/not/yet" -- build
expect_status 0
expect_silent
expect_in stdout "real bazel at ${machine}/home/not/yet"

new_machine home_of_the_users_entry "${ALL[@]}"
run_wrapper HOME= -- build
expect_status 0

new_machine packages_are_somebody_elses
run_wrapper MESHWRIGHT_NO_INSTALL=1 -- build
expect_status 0
expect_not_in calls "dpkg-query"
expect_in calls "bazel build"

new_machine another_system
rm "${machine}/bin/dpkg-query"
run_wrapper -- build
expect_status 0
expect_in calls "bazel build"

new_machine another_system_without_bazel
rm "${machine}/bin/dpkg-query" "${machine}/bin/bazel"
run_wrapper -- build
expect_status 1
expect_in stderr "no bazel on PATH"

if ((failures > 0)); then
  echo "${failures} expectations failed" >&2
  exit 1
fi
