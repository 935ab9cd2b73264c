"""What measures hardstep and writes its tables; run from the root of the repository.

- suites/: TOML files for `hardstep bench run`, and for `make bench-maxsat`.
- runs/: scripts that made the other records.
- step/: a step timed against the published package (`make bench-step`).
- maxsat/: MAX-SAT against its baselines (`make bench-maxsat`).
- pages/: what writes tables and figures from records into README.md and docs/.
- results/: the records; large ones are packed (gzip -n -9) and read as they are.
- superseded.jsonl.gz: records that later ones replaced.
"""
