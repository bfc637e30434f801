A number of GPUs that is given is late where it takes longer.
== args
compute llama-7b --tokens 1T --zero 3 --days 30 --gpus 56 --every-gpu
== stdout ~
  h200               yes     56  30.3%   28.4   
  a100-80gb          yes     56  42.3%   64.6!  
the cheapest that fits first; ! late on so many; prices are
