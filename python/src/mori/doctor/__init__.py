"""`mori doctor`: what stands in the way on this node, or between this one and another, and what to
do about it.

answer.py   one check's answer
node.py     the checks of a node: limits, kernel settings, memory, devices, settings
pair.py     the checks of two nodes, one that listens and one that connects
command.py  the command: runs them, prints them, ends with 1 when one failed
"""
