// A do-nothing device guard for DeviceType::CUDA, so that autograd accepts fake CUDA tensors on a CPU-only PyTorch; and the
// choice of scaled_dot_product_attention's kernel, which a CPU build has no code for (aten's cuda/sdp_utils.cpp).
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace {
struct NoGuard final : c10::impl::DeviceGuardImplInterface {
  NoGuard() {}
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return here(); }
  c10::Device getDevice() const override { return here(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
 private:
  static c10::Device here() { return c10::Device(c10::DeviceType::CUDA, 0); }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, here()); }
};
C10_REGISTER_GUARD_IMPL(CUDA, NoGuard)
}  // namespace
#include <ATen/detail/CUDAHooksInterface.h>
namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}

namespace {
int forced = -1;
int64_t chosen = -1;

// Flash takes half precision without a mask, one width of at most 256; the memory-efficient kernel no grouped heads.
int64_t rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask) {
  if (forced >= 0) return forced;
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  if (half && !mask.has_value() && q.size(-1) <= 256 && q.size(-1) == v.size(-1))
    return static_cast<int64_t>(at::SDPBackend::flash_attention);
  return static_cast<int64_t>(q.size(1) == k.size(1) ? at::SDPBackend::efficient_attention : at::SDPBackend::math);
}

int64_t choose(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double,
               bool, std::optional<double>, bool) {
  return chosen = rule(q, k, v, mask);
}

struct Registers {
  Registers() { at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose); }
} registers;
}  // namespace

extern "C" {
void force_sdpa(int kernel) { forced = kernel; }
int last_sdpa() { return static_cast<int>(chosen); }
}
