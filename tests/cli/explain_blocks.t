What is smaller than a block of the allocator is as large as one: the term says so.
== args
explain gpt2 --seq-len 30 --fast
== stdout ~
      mean = 512 B
            b*s * fp32, in blocks of 512 B
          = ceil(30 * 4 / 512) * 512
