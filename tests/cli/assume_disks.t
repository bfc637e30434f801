What is not known of disks and of the host is said of each, and the disk decides.
== args
estimate llama-7b --zero 3 --gpus 8 --offload-optimizer nvme --fast
== stdout ~
% transfers to and from disks;
  - copies to the host and back run at the link's rate, Adam there as fast as where it was timed (--host-bandwidth)
  - a node's disks read 10 GB/s and write 5, as four of PCIe 4 did, whatever else its processes do (--nvme-bandwidth)
