"""The demonstration on a real text, in two parts: a mixture-of-experts layer over 8 PE processes,
and the text's KV cache moving from a prefill engine to a decode engine.

model.py      the layer: words to tokens, router, experts, and the layer in one process, which reads
              the text and the seed alone
pe.py         what one PE process does: dispatch, its experts, combine
kv.py         the cache: what each token's bytes are
kv_engine.py  what the prefill and the decode process do
kv_run.py     the second part, over each backend
group.py      starts processes, hears them, ends them
run.py        the first part, and both: compares every row with model.py's layer, prints tables

`mori demo` (mori/cli.py) calls run.main.
"""

from __future__ import annotations

# One thread for matrix products, whichever library numpy has them from.
ONE_BLAS_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
