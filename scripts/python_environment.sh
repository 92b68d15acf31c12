#!/usr/bin/env bash
# Makes the virtual environment FOLDER with requirements.txt and a version of torch:
# `scripts/python_environment.sh FOLDER TORCH`. Does nothing when that has been done already.
set -euo pipefail

folder=$1
torch=$2
python=${PYTHON:-python3}
requirements=$(dirname "$0")/../requirements.txt

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
  3.10 | 3.11 | 3.12 | 3.13) ;;
  *)
    echo "zensync needs Python 3.10 to 3.13, and $python is $version: set PYTHON to another one" >&2
    exit 1
    ;;
esac

# What the environment was made from: when all of it is unchanged, so is the environment.
stamp=$folder/made_from.txt
made_from="python $version, torch $torch, requirements $(sha256sum <"$requirements")"
if [[ -f $stamp && $(<"$stamp") == "$made_from" ]]; then
  exit 0
fi

echo "Setting up $folder: Python $version, torch $torch (the first time takes minutes)"
if [[ ! -x $folder/bin/python ]] || ! "$folder/bin/python" -c \
  "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')"; then
  "$python" -m venv --clear "$folder"
fi
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
  --requirement "$requirements" "torch==$torch"
echo "$made_from" >"$stamp"
