/*
 * Constants of frameworks and drivers: what no formula gives. Each has a name,
 * a unit, a source, and says when it was only read, not measured.
 */
#ifndef MEMPLAN_DATA_CONSTANTS_H
#define MEMPLAN_DATA_CONSTANTS_H

#include <stdint.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* cuBLAS keeps one workspace a handle and stream; training has two: the
 * forward thread's and the autograd thread's. PyTorch's default is
 * ":4096:2:16:8" before Hopper and 32 MiB from it on, on Blackwell since the
 * spring of 2026: containers until then had the smaller one there
 * (aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize); what
 * deterministic runs have to set, ":4096:8", is 32 MiB on any GPU. */
enum { CUBLAS_WORKSPACES = 2 };
#define CUBLAS_WORKSPACE_BYTES ((uint64_t)8519680)
#define CUBLAS_WORKSPACE_HOPPER_BYTES MIB(32)

/* Transformer Engine's own GEMM workspace
 * (transformer_engine/pytorch/module/base.py, get_cublas_workspace_size_bytes:
 * 32 MiB + 1 KiB from Hopper on, 4 MiB before). */
#define TE_WORKSPACE_BYTES MIB(4)
#define TE_WORKSPACE_HOPPER_BYTES (MIB(32) + KIB(1))

/* Products that overlap with communication have one so many times as large
 * (cpp_extensions/gemm.py, _NUM_MAX_UB_STREAMS), and by default buffers that
 * the ranks share for inputs gathered, of 8 bits in such products, and for
 * results to be scattered (module/base.py, initialize_ub: qkv and fc1 forward,
 * proj and fc2 backward, qkv and fc1 in bulk; proj, fc2, and the gradients of
 * both inputs). */
enum { TE_OVERLAP_STREAMS = 3, TE_BUFFERS_IN = 6, TE_BUFFERS_OUT = 4 };

/* PyTorch's symmetric memory: a signal pad behind each buffer, both in whole
 * granules of cuMemGetAllocationGranularity, 2 MiB on the GPUs of the catalogue
 * (torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu, alloc;
 * CUDASymmetricMemoryTypes.hpp, 32 channels of 72 ranks). Read, not measured. */
#define SYMMETRIC_SIGNALS_BYTES ((uint64_t)9216)
#define SYMMETRIC_GRANULE_BYTES MIB(2)

/* Grouped products run on so many streams, each with a workspace of its own
 * (transformer_engine/common/util/multi_stream.cpp,
 * nvte_get_num_compute_streams; pytorch/cpp_extensions/gemm.py,
 * get_cublas_workspace). */
enum { TE_GROUPED_STREAMS = 4 };

/* Megatron-FSDP's queue of gradients to reduce, elements: at least this,
 * whatever two units have (megatron_fsdp.py,
 * suggested_communication_unit_size). */
#define MEGATRON_FSDP_QUEUE_ELEMS ((uint64_t)1000000000)

/* Transformer Engine offloads no tensor of fewer elements
 * (pytorch/cpu_offload.py, OffloadableLayerState._check_if_offload). */
#define TE_OFFLOAD_MIN_ELEMS ((uint64_t)256 * 1024)

/* Graphs warm up on one stream of their own, and are captured on another
 * (transformer_engine/pytorch/graph.py, torch/cuda/graphs.py,
 * default_capture_stream). */
enum { GRAPH_STREAMS = 2 };

/* Megatron's fine-grained offloading, where nothing is said
 * (core/transformer/transformer_config.py, min_offloaded_tensor_size). */
#define MLM_OFFLOAD_MIN_ELEMS ((uint64_t)1024 * 1024)

/* OffloadActivations: bytes of the least tensor that goes, and how many are on
 * their way (trl/models/activation_offloading.py, min_offload_size,
 * max_fwd_stash_size). */
enum { TRL_OFFLOAD_MIN_BYTES = 1024, TRL_OFFLOAD_STASH = 5 };

/* Axolotl's checkpoints in files: threads that write, and how many tensors may
 * be unwritten before forward waits (monkeypatch/gradient_checkpointing/
 * offload_disk.py at c6d69d5c, save_workers, save_semaphore). */
enum { DISCO_WRITERS = 4, DISCO_UNWRITTEN = 2 * DISCO_WRITERS };

/* Elements that share a scale: Transformer Engine's Float8BlockScaling, 1 x 128
 * of an input and 128 x 128 of a weight (tensor/float8_blockwise_tensor.py), as
 * in DeepSeek-V3 (arXiv:2412.19437, section 3.3.2); MXFP8's, a byte each
 * (tensor/mxfp8_tensor.py). */
/* An element of NVFP4 in one layout, with its share of a tile's scale. */
#define NVFP4_BYTES (0.5 + 1.0 / NVFP4_TILE)
enum { FP8_TILE = 128, MXFP8_TILE = 32, NVFP4_TILE = 16 };

/* What nobody simulates: reserved over what the pools have at their fullest, of
 * what comes and goes, and the least with which a device still has room, over
 * the peak. Medians of 190 and 70 simulated setups: gpt2, llama-3.2-1b,
 * llama-7b and mixtral-8x7b under DDP, DeepSpeed 1 to 3, FSDP, torchtitan,
 * Megatron, with LoRA and recomputation, of 128 to 4096 tokens. Parts per
 * thousand. */
enum { RESERVED_OF_POOLS_PERMILLE = 1176, RESERVED_AT_LEAST_PERMILLE = 1128 };

/* How near that is to the simulation in nine of ten, percent; under FSDP
 * version 2, whose streams it does not know, of 192 setups.
 * [docs/method.md eq. reserved] */
enum { FAST_NEAR_PERCENT = 12, FAST_NEAR_FSDP2_PERCENT = 24 };

/* GPTQ: rows of the input side with one scale and zero point, in every
 * published checkpoint of Qwen and Llama; GPTQConfig's and AwqConfig's default
 * (transformers utils/quantization_config.py). */
enum { GPTQ_GROUP = 128 };

/* CUDA context and loaded kernels, outside the allocator: 0.47 GiB on an A100
 * with torch 2.1 and lazy loading (stas00/ml-engineering, training/
 * performance). Other families are not measured: taken the same, unverified. */
#define CUDA_CONTEXT_BYTES ((uint64_t)(0.47 * 1024 * 1024 * 1024))

/* The same on an H100: what cudaMemGetInfo says is gone less what the
 * allocator has reserved, torch 2.11 with CUDA 13.0, driver 580, equal in all
 * 37 runs whose attention is flash (tests/measured/memory-gpu.jsonl); 16 MiB
 * less in the three without it. */
#define CUDA_CONTEXT_HOPPER_BYTES ((uint64_t)804061184)

/* Before CUDA 11.7 every kernel was loaded at once: 1573 MiB on an A100, 1271
 * MiB on a V100, measured by those who ran Megatron-DeepSpeed in 2022
 * (bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md).
 */
#define CUDA_CONTEXT_EAGER_BYTES MIB(1573)
#define CUDA_CONTEXT_EAGER_VOLTA_BYTES MIB(1271)

/* NCCL buffers per communicator: 544 MB with 2 GPUs, 688 MB with more, seen on
 * 4 A100 with NVLink (NVIDIA/nccl#964). Scales with channels, not with ranks;
 * other links and versions are not measured. */
#define NCCL_PAIR_BYTES ((uint64_t)544000000)
#define NCCL_GROUP_BYTES ((uint64_t)688000000)

/* Those figures are for 24 channels: two a NVLink, of which an A100 has twelve
 * and a V100 six. Between nodes there are as many as the network feeds, two a
 * network card: eight with four cards (NCCL src/graph/search.cc,
 * ncclTopoCompute, duplicated channels). Read, not measured. */
enum { NCCL_VOLTA_SHARE = 2 };
#define NCCL_NODES_BYTES (NCCL_GROUP_BYTES / 3)

/* DeepSpeed's stage3_max_reuse_distance (runtime/zero/config.py): parameters
 * used again within so many elements are not released. About half of it lies
 * before the turn from forward to backward, half after. */
#define ZERO3_MAX_REUSE_ELEMS ((uint64_t)1000000000)

/* ZeRO++: weights with one fp32 scale, at most: fewer where the number of
 * elements would not come out even (runtime/zero/partition_parameters.py,
 * CUDAQuantizer.target_group_size). */
#define QWZ_GROUP_ELEMS ((uint64_t)8000)

/* Bytes a second that DeepSpeed's asynchronous I/O reads into a node's memory
 * from four NVMe disks of PCIe 4, and what share of it it writes (5; of PCIe 5
 * 27 and 11, of eight 48 and 26) (deepspeedai/DeepSpeed, blogs/deepnvme
 * 08-2024, 06-2025). */
#define NVME_NODE_READ_BYTES_S 10e9
#define NVME_WRITE_SHARE 0.5
#define NVME_SOURCE "deepspeedai/DeepSpeed, blogs/deepnvme"

/* Shortest file that DeepSpeed swaps a tensor to, and what it rounds up to
 * (runtime/swap_tensor/utils.py, MIN_AIO_BYTES, AIO_ALIGNED_BYTES; one thread,
 * aio_config.py). */
#define SWAP_MIN_BYTES ((uint64_t)1 << 20)
#define SWAP_ALIGN_BYTES ((uint64_t)1024)

/* DeepSpeed aligns its flat buffers to 2 elements a rank
 * (runtime/zero/stage_1_and_2.py, nccl_start_alignment_factor). */
enum { ZERO_ALIGN_ELEMS = 2 };

/* bitsandbytes: tensors below this keep fp32 states (optim/optimizer.py,
 * min_8bit_size); one fp32 constant a block (functional.py, blocksize). */
enum { BNB_MIN_8BIT_ELEMS = 4096, BNB_BLOCK_ELEMS = 256 };
/* Smaller tensors of a paged optimizer are plain ones (get_state_buffer); the
 * table of codes, 256 fp32 numbers a moment, is one for all (fill_qmap). */
enum { BNB_MIN_PAGED_ELEMS = 100000, BNB_CODE_BYTES = 1024 };
/* torchao's 4-bit Adam: the same threshold, blocks of 128, 16 fp32 codes a
 * tensor (torchao/optim/subclass_4bit.py, adam.py). */
enum { AO_4BIT_BLOCK_ELEMS = 128, AO_4BIT_CODE_BYTES = 64 };

#endif
