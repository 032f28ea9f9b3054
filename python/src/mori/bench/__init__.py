"""`mori bench io`: what transfers between two engines of this machine cost, as a table.

options.py  the command's options
io.py       the command: rounds, table, JSON
io_peer.py  the other engine, a process of its own
plot.py     the table as a picture

tests/bench compares with peers; this looks at one's own machine.
"""
