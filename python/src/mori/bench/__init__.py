"""`mori bench`: what calls cost on this machine, as a table, JSON, CSV or a picture.

options.py  the commands' options
report.py   rows as they are measured: columns, progress, JSON, CSV
plot.py     rows as a picture
io.py       `mori bench io`; io_peer.py is the other engine, a process of its own
pes.py      the PEs of a run: this process and those that it starts, or what a launcher started
shmem.py    `mori bench shmem`: puts and gets from PE 0 to its neighbour
ep.py       `mori bench ep`: dispatch and combine of all PEs

tests/bench compares with peers; this looks at one's own machine.
"""
