"""`zensync advise`: what every scheme would cost, from the profile that a run has recorded.

    options      the command line
    prediction   bytes and times by the cost model that scheme "auto" decides by
    verdict      whether zensync helps, in a sentence
    table, plot  for people

docs/advise.md tells how to record a profile and how far to trust a prediction.
"""

import importlib.util
import sys
from collections.abc import Sequence

EXIT_USAGE = 2
PACKAGES = ("matplotlib", "rich")


def main(arguments: Sequence[str]) -> int:
    """The exit code of `zensync advise` with these arguments."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        install = f"pip install {' '.join(missing)}"
        print(f"zensync advise: it needs {', '.join(missing)}: {install}", file=sys.stderr)
        return EXIT_USAGE
    from zensync.advise import options, report

    return report.run(options.parse(arguments))
