# Which packages the build needs, and how a missing one is installed. Sourced by tools/bazel and .ci/run.

# Tools, Bazel's own rules (WORKSPACE says what for), libraries.
BUILD_PACKAGES=(
  bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-skylib
  g++ git pkg-config
  libabsl-dev libbenchmark-dev libgmock-dev libgoogle-perftools-dev libgtest-dev libjs-chart.js libopenblas-dev
  libopenmpi-dev libprotobuf-dev libpugixml-dev libtomlplusplus-dev libyaml-cpp-dev nlohmann-json3-dev openmpi-bin
  protobuf-compiler zlib1g-dev
)

# The formatting check. One version, since each formats differently.
CHECK_PACKAGES=(clang-format-14)

# Prints those of the packages "$@" that are not installed, one a line.
missing_packages() {
  local installed package
  # Unknown names make dpkg-query fail and complain; the others are printed all the same.
  installed=" $(dpkg-query --show --showformat='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
  for package in "$@"; do
    [[ "${installed}" == *" installed:${package} "* ]] || echo "${package}"
  done
}

# Seconds between attempts to install: a network or a mirror that fails once does not fail for minutes.
INSTALL_PAUSES=(0 10 30 60)

# Installs those of the packages "$@" that are missing. Silent where there are none.
# Returns 1, with a message on stderr that names the packages, where they cannot be installed after all attempts.
# Where there is no dpkg-query, the system is another one than Debian or Ubuntu, and its owner knows best: returns 0.
ensure_packages() {
  local missing log pause
  local -a as_root=()
  command -v dpkg-query >/dev/null || return 0
  mapfile -t missing < <(missing_packages "$@")
  (( ${#missing[@]} > 0 )) || return 0

  if [[ "$(id -u)" != 0 ]]; then
    if ! sudo -n true 2>/dev/null; then
      echo "meshwright: these packages are missing, and installing them takes root. Please run" >&2
      echo "    sudo apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo -n)
  fi

  echo "meshwright: installing ${missing[*]}" >&2
  log="$(mktemp)"
  if apt_get "${as_root[@]}" install "${missing[@]}" >"${log}" 2>&1; then
    rm -f "${log}"
    return 0
  fi
  # Again with fresh package lists: a new machine has none, and old lists name files that are gone.
  for pause in "${INSTALL_PAUSES[@]}"; do
    if (( pause > 0 )); then
      echo "meshwright: apt-get failed; once more in ${pause} s" >&2
      sleep "${pause}"
    fi
    if { apt_get "${as_root[@]}" update && apt_get "${as_root[@]}" install "${missing[@]}"; } >"${log}" 2>&1; then
      rm -f "${log}"
      return 0
    fi
  done
  cat "${log}" >&2
  rm -f "${log}"
  echo "meshwright: apt-get could not install ${missing[*]}" >&2
  return 1
}

# apt_get [sudo -n] COMMAND ARGUMENT...: apt-get without questions, waiting for another one to finish.
apt_get() {
  local -a as_root=()
  if [[ "$1" == sudo ]]; then
    as_root=("$1" "$2")
    shift 2
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get --yes --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null
}
