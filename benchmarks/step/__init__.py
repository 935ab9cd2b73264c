"""One optimizer step, timed: hardstep and the authors' polystep on the same two cores.

    make bench-step            run what is not recorded yet

`rows` says what is compared, `models` and `batches` what both sides work on, `ours` and `theirs`
are the two workers, `limits` what the machine could do at best, `runs` the order of events,
`records` and `report` what is kept and shown.
"""
