"""What the comparing examples share: everything but their models and data.

command_line    options, starting the ranks, the exit code
workload        what an example has to say: a model, batches, a held-out loss
training        trains it, with plain DDP or with zensync, and measures
exactness       compares the gradients themselves
comparison      both trainings, and what is compared between them
progress, report, plot    for people; results.json for machines
recording       gradients of a workload for `zensync bench --model`
corpus          text that every Python installation carries
popularity      Zipf's law;  sampled_softmax    an output layer that touches few rows
"""
