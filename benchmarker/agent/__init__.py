r"""Process groups: their ranks on this machine, or on the nodes of an allocation by an agent on each.

The parent stays on one node and starts an agent on each node that takes part, for the whole run. For each trial, the
agent reads that node's meters, starts its ranks with pipes of their own, and passes on what they and the parent tell
each other:

    parent ---- agent of node1 ---- ranks 0, 1
           \--- agent of node2 ---- ranks 2, 3

A launcher's program for starting others may tear lines of several processes, so each agent has a command of its own.
When its standard input ends, so does the agent, and with it all that it has started.
"""
