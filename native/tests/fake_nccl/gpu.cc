#include "gpu.h"

#include <algorithm>

#include "plugin.h"

namespace fake {
namespace {

constexpr int64_t kLaunchNs = 3000;  // from the launch call to the kernel's first instruction

}  // namespace

void Gpu::submit(std::shared_ptr<Kernel> kernel) {
  std::lock_guard<std::mutex> lock(mutex_);
  kernel->launch_ns = mono_ns();
  streams_[kernel->stream].kernels.push_back(std::move(kernel));
}

bool Gpu::advance(int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool has_changed = false;
  for (auto& [number, stream] : streams_) has_changed = advance(stream, now_ns) || has_changed;
  if (has_changed) arena_.progress++;
  return has_changed;
}

bool Gpu::advance(Stream& stream, int64_t now_ns) {
  bool has_changed = false;
  while (!stream.kernels.empty()) {
    Kernel& kernel = *stream.kernels.front();
    if (kernel.start_ns == 0 && !begin(kernel, stream, now_ns)) return has_changed;
    if (meet(kernel)) has_changed = true;
    if (finish_runs(kernel)) has_changed = true;
    const int64_t end_ns = end_of(kernel);
    if (end_ns == 0 || now_ns < end_ns) return has_changed;
    for (const auto& run : kernel.runs) {
      run->is_over = true;
      if (run->on_over) run->on_over(*run);
    }
    stream.free_ns = end_ns;
    stream.kernels.pop_front();
    has_changed = true;
  }
  return has_changed;
}

bool Gpu::begin(Kernel& kernel, const Stream& stream, int64_t now_ns) {
  const int64_t ready_ns = std::max(kernel.launch_ns + kLaunchNs + kernel.delay_ns, stream.free_ns);
  if (kernel.is_held || kernel.never_starts || now_ns < ready_ns) return false;
  kernel.start_ns = ready_ns;
  return true;
}

// The kernel runs: its ops wait for the other members from now on.
bool Gpu::meet(Kernel& kernel) {
  bool has_changed = false;
  for (const auto& run : kernel.runs) {
    if (run->meeting >= 0) continue;
    run->meeting = arena_.arrive(run->key, run->signature, kernel.start_ns, run->dead);
    if (run->meeting < 0) continue;
    run->start_ns = kernel.start_ns;
    has_changed = true;
  }
  return has_changed;
}

// Collectives of one kernel are one batch with one end; sends and receives end one by one.
bool Gpu::finish_runs(Kernel& kernel) {
  bool has_changed = false;
  bool is_batch_complete = true;
  int64_t batch_end_ns = 0;
  for (const auto& run : kernel.runs) {
    if (run->meeting < 0) {
      is_batch_complete = false;
      continue;
    }
    if (run->has_left) continue;
    const Arena::Outcome seen = arena_.look(run->meeting, run->n_members);
    if (!seen.is_complete) {
      is_batch_complete = is_batch_complete && !run->is_collective;
      continue;
    }
    const int64_t end_ns = seen.latest_start_ns + run->duration_ns;
    run->dead_channels = seen.dead_channels;
    if (run->is_collective) {
      batch_end_ns = std::max(batch_end_ns, end_ns);
    } else {
      run->end_ns = end_ns;
      run->has_left = true;
      arena_.leave(run->meeting, run->n_members);
      has_changed = true;
    }
  }
  if (!is_batch_complete || batch_end_ns == 0) return has_changed;
  for (const auto& run : kernel.runs) {
    if (!run->is_collective || run->has_left) continue;
    run->end_ns = batch_end_ns;
    run->has_left = true;
    arena_.leave(run->meeting, run->n_members);
  }
  return true;
}

// 0: not yet known, or a channel never stops.
int64_t Gpu::end_of(const Kernel& kernel) {
  int64_t end_ns = 0;
  for (const auto& run : kernel.runs) {
    if (run->end_ns == 0 || run->dead_channels != 0) return 0;
    end_ns = std::max(end_ns, run->end_ns.load());
  }
  return end_ns;
}

Gpu::Turn Gpu::turn_of(const Kernel& kernel) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto& kernels = streams_[kernel.stream].kernels;
  const auto is_it = [&kernel](const auto& each) { return each.get() == &kernel; };
  if (std::none_of(kernels.begin(), kernels.end(), is_it)) return Turn::kIsGone;
  return is_it(kernels.front()) ? Turn::kIsNext : Turn::kWaits;
}

void Gpu::release(Kernel& kernel) {
  std::lock_guard<std::mutex> lock(mutex_);
  kernel.launch_ns = mono_ns();
  kernel.is_held = false;
}

bool Gpu::is_idle(const Comm* comm) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, stream] : streams_)
    for (const auto& kernel : stream.kernels)
      if (comm == nullptr || kernel->comm == comm) return false;
  return true;
}

void Gpu::drop(const Comm* comm) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [number, stream] : streams_) {
    auto& kernels = stream.kernels;
    kernels.erase(std::remove_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k->comm == comm; }),
                  kernels.end());
  }
}

uint64_t Gpu::stamp(int64_t mono) const {
  const int64_t drift_ns = mono / 1000 * clock_.drift_ppm / 1000;
  const int64_t raw = clock_.base_ns + mono + drift_ns;
  return static_cast<uint64_t>(raw - raw % clock_.quantum_ns);
}

}  // namespace fake
