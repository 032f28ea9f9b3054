"""The demonstration: a mixture-of-experts layer on a real text, over 8 PE processes.

model.py  the layer: words to tokens, router, experts, and the layer in one process, which reads
          the text and the seed alone
pe.py     what one PE process does: dispatch, its experts, combine
run.py    starts the PEs, watches them, compares every row with model.py's layer, prints a table

`mori demo` (mori/cli.py) calls run.main.
"""

from __future__ import annotations

# One thread for matrix products, whichever library numpy has them from.
ONE_BLAS_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
