#!/usr/bin/env bash
# Sees that the system has what a goal needs: `scripts/system_packages.sh demo test`.
#
# Every need is checked by looking for the thing itself, so tools that came from elsewhere count. What
# is missing is installed with apt-get where this user may (root, or sudo without a password). Otherwise
# the missing packages are listed with the command that installs them: optional ones are done without,
# required ones end the script with status 1. When nothing is missing, nothing is asked of the network.
set -euo pipefail

python=${PYTHON:-python3}
python_package=${python##*/}

# The needs of a goal, one a line: required or optional, the check, its argument, Debian's package.
needs_of() {
  case $1 in
    demo)
      echo "required command make make
required command g++ g++
required command $python $python_package
required module ensurepip $python_package-venv
required python_header Python.h $python_package-dev
optional command ip iproute2"
      ;;
    test)
      needs_of demo
      echo "required command cmake cmake
required command ninja ninja-build
required header gtest/gtest.h libgtest-dev
required header gmock/gmock.h libgmock-dev
optional header simgrid/s4u.hpp libsimgrid-dev"
      ;;
    bench)
      needs_of test
      ;;
    lint)
      needs_of demo
      echo "optional command shellcheck shellcheck"
      ;;
    fuzz)
      needs_of test
      echo "required command clang++ clang"
      # Debian packages clang's runtime libraries apart, by clang's own version.
      if have_command clang++; then
        echo "required fuzzer - libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
      fi
      ;;
    *)
      echo "$0: no goal '$1': choose from demo, test, bench, lint, fuzz" >&2
      exit 2
      ;;
  esac
}

have_command() { command -v "$1" >/dev/null; }

have_header() {
  have_command g++ &&
    printf '#if !__has_include(<%s>)\n#error missing\n#endif\n' "$1" |
    g++ -E -x c++ - >/dev/null 2>&1
}

have_module() { "$python" -c "import $1" 2>/dev/null; }

have_python_header() {
  "$python" -c "import pathlib, sys, sysconfig
sys.exit(not (pathlib.Path(sysconfig.get_paths()['include']) / '$1').exists())" 2>/dev/null
}

have_fuzzer() {
  have_command clang++ &&
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null
}

# Fills the arrays `required` and `optional` with the packages whose check fails.
find_missing() {
  required=() optional=()
  local kind check argument package
  while read -r kind check argument package; do
    if ! "have_$check" "$argument"; then
      if [[ $kind == required ]]; then required+=("$package"); else optional+=("$package"); fi
    fi
  done < <(for goal in "$@"; do needs_of "$goal"; done | sort -u)
}

# Prints the words that let this user install: nothing for root, sudo for who may use it unasked.
privilege() {
  if [[ $(id -u) == 0 ]]; then
    return 0
  elif have_command sudo && sudo -n true 2>/dev/null; then
    echo "sudo -n"
  else
    return 1
  fi
}

install_packages() {
  if (($# == 0)); then return 0; fi
  have_command apt-get || return 1
  local as_root
  as_root=$(privilege) || return 1
  echo "Installing with apt-get: $*"
  $as_root apt-get -q update >/dev/null || echo "apt-get update failed, going on with the old lists" >&2
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" \
    >/dev/null
}

main() {
  for goal in "$@"; do needs_of "$goal" >/dev/null; done
  find_missing "$@"
  if ((${#required[@]} + ${#optional[@]} == 0)); then return; fi
  # An optional package that this release does not have must not keep the required ones out.
  install_packages "${required[@]}" "${optional[@]}" || install_packages "${required[@]}" || true
  find_missing "$@"
  # Only now that clang is there does it tell which runtime libraries it needs.
  if ((${#required[@]})); then
    install_packages "${required[@]}" && find_missing "$@"
  fi
  if ((${#optional[@]})); then
    echo "Going on without these optional system packages: ${optional[*]}" >&2
    echo "To install them: sudo apt-get install ${optional[*]}" >&2
  fi
  if ((${#required[@]})); then
    echo "These system packages are missing: ${required[*]}" >&2
    echo "Install them, then try again: sudo apt-get install ${required[*]}" >&2
    exit 1
  fi
}

main "$@"
