"""`make fuzz`: files and command lines that are damaged, hostile or absurd, read by the real code.

Every input is read, or refused in one sentence; it never ends in a traceback, a hang or a wrong
result. This lives among the tests since it needs their tools, and since a minute of it is one.

    __main__    options, replaying one finding
    rounds      which inputs next; counts and findings
    worker      one batch in a process with limits of time and memory
    findings    what was found, once each, kept with its input
    answers     the program called in this process, and what it may say
    damage      changes of bytes
    trees       changes of nested values: JSON, TOML, checkpoints
    target      what a target is
    catalogue   all targets; one module per kind of file
"""
