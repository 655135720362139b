#!/bin/sh
# What a change must pass besides its tests. 'tools/check.sh' runs every check, 'tools/check.sh NAME...' some; the
# pre-commit hooks and CI call it, so that there is one list. './lg setup lint' installs the Python tools; clang-format
# and clang-tidy are Debian's (version 14: another one formats otherwise).
set -u
cd "$(dirname -- "$0")/.." || exit 1
PATH=$PWD/.venv/bin:$PATH

native_files() { git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp'; }

run_check() {
  case $1 in
    clang-format) native_files | xargs -0 clang-format --dry-run -Werror ;;
    clang-tidy) # its wheel has no headers of a compiler: GCC's do
      cmake -S . -B build/tidy -G Ninja -DLINKGAUGE_PYTHON=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null &&
        git ls-files -z --cached --others --exclude-standard -- 'core/*.cpp' ':!core/bindings*' |
        xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/tidy --quiet \
          "--extra-arg=-isystem$(c++ -print-file-name=include)"
      ;;
    ruff) ruff check . && ruff format --check . ;;
    mypy) mypy && mypy tools && mypy docs/_site ;;
    codespell) codespell ;;
    deptry) deptry src ;;
    prose) python3 tools/prose.py ;;
    rooms) lint-imports && python3 tools/core_rooms.py ;;
    *)
      echo "tools/check.sh: no check '$1'; there are: $checks" >&2
      return 2
      ;;
  esac
}

checks="clang-format clang-tidy ruff mypy codespell deptry rooms prose"
status=0
for check in ${*:-$checks}; do
  if run_check "$check"; then
    echo "$check: ok"
  else
    echo "$check: failed"
    status=1
  fi
done
exit "$status"
