Disks whose rate is given leave the host's to be said.
== args
estimate llama-7b --zero 3 --gpus 8 --offload-optimizer nvme --offload-params cpu --nvme-bandwidth 20e9 --fast
== stdout ~
  - copies to the host and back run at the link's rate, Adam there as fast as where it was timed (--host-bandwidth)
