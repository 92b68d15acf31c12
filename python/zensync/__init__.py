"""Sparse gradient synchronisation for DistributedDataParallel.

    model = DistributedDataParallel(model)
    model.register_comm_hook(zensync.State(), zensync.hook)

Only the non-zero gradients travel; the result is the mean that DDP itself would compute.
"""

from zensync._built import check_built
from zensync._version import __version__

check_built()  # before the extension is loaded: a wrong one loads without complaint

from zensync._C import schemes  # noqa: E402
from zensync.all_reduce import all_reduce  # noqa: E402
from zensync.dgc import DGC  # noqa: E402
from zensync.hook import hook  # noqa: E402
from zensync.state import State  # noqa: E402

__all__ = ["DGC", "State", "__version__", "all_reduce", "hook", "schemes"]
