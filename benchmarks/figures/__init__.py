"""Parts of benchmarks/paper_figures.py."""
