"""One optimizer step, timed: hardstep and the authors' polystep on the same two cores.

    make bench-step            run what is not recorded yet

`rows` says what is compared, `models` and `batches` what both sides work on, `ours` and `theirs`
are the two workers, `limits` what the machine could do at best, `runs` the order of events,
`records` and `report` what is kept and shown.

The second table, of networks people train, has the same parts: `network_rows`, `networks`,
`network_activity` (whether they are alive), `network_blocks` (what their tensors take),
`network_ours`, `network_theirs`, `network_runs`, `network_report` and `network_chart`; `page` is
what both reports write with. `against` measures the rows of the first one beside an older commit.
`gathered_rates` has no row: it shows what decides between gathered examples and whole passes.
"""
