"""Parts of benchmarks/dgc_convergence.py."""
