"""The 122B's shape end to end on one big machine: `python -m inference.benchmarks.full_size ARM --model FILE ...`.

Arms: `dense` (plain llama.cpp against our backbone, every expert local), `swarm` (W one-core worker processes hold all
experts between them), `churn` (a third of the workers is killed mid-run), `exact` (the recorded traces of an arm are
repeated by plain llama.cpp), `pages` (index, publishing and pages of so many experts). Each adds its cases to one
report as they are measured, so that a machine that is there for minutes can be used arm by arm.
docs/benchmarks/full-size.md tells how it was run, and what came out.
"""
