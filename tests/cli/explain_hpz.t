Second shards over 8 of 16 ranks: 13,476,831,232 bytes of weights pass over all
ranks once, 15/16 of them, and over groups once, 7/8.
== args
explain llama-7b --gpus 16 --zero 3 --hpz-partition-size 8
== stdout ~
    second shards, over hpz_partition_size ranks = 1.34 GiB (1,434,547,160 B)
    parameters = 11.77 GiB (12,634,529,280 B)
    parameters, in groups of hpz_partition_size = 10.98 GiB (11,792,227,328 B)
