#include "gpu_clock.h"

#include "atomics.h"

namespace ci::nccl {
namespace {

constexpr int64_t kWindowNs = 2000000000;
// Oscillators and the slewing of the host clock; what a fit over a minute may miss, since both wander.
constexpr double kMaxDrift = 200e-6;
constexpr double kDriftSlack = 1e-6;
constexpr double kShortestBaseNs = 1e6;  // nearer bounds say nothing of the drift
constexpr int64_t kCoarsestQuantumNs = 2000;
constexpr int64_t kJumpNs = 1000000000;
constexpr uint32_t kContradictions = 3;
constexpr int64_t kLatestNs = int64_t{1} << 62;  // keeps every sum below in range; the year 2116
constexpr int kReads = 8;
constexpr uint32_t kSettled = 64;  // observations that are all looked at, to learn the quantum
constexpr int64_t kFarNs = int64_t{1} << 34;

int64_t scaled(double drift, int64_t ns) { return static_cast<int64_t>(drift * static_cast<double>(ns)); }
double lesser(double a, double b) { return a < b ? a : b; }
double greater(double a, double b) { return a > b ? a : b; }

// A bound carried to another moment, as loose as the drift may make it.
template <class B>
int64_t upper_at(const B& bound, int64_t gpu_ns, double drift_low, double drift_high) {
  const int64_t span_ns = gpu_ns - bound.gpu_ns;
  return bound.offset_ns + scaled(span_ns > 0 ? drift_high : drift_low, span_ns);
}
template <class B>
int64_t lower_at(const B& bound, int64_t gpu_ns, double drift_low, double drift_high) {
  return upper_at(bound, gpu_ns, drift_high, drift_low);
}

}  // namespace

void GpuClock::observe(int64_t gpu_ns, int64_t host_upper_ns, int64_t host_lower_ns, int64_t now_ns) {
  const bool has_lower = host_lower_ns > 0;
  if (gpu_ns <= 0 || gpu_ns > kLatestNs || host_upper_ns <= 0 || (has_lower && host_lower_ns > host_upper_ns)) return;
  if (adds_nothing(gpu_ns, host_upper_ns, has_lower ? host_lower_ns : 0, now_ns)) return;
  if (load_relaxed(is_busy_) != 0 || exchange(is_busy_, 1) != 0) return;
  if (has_started_ == 0) restart();
  const int64_t upper_ns = host_upper_ns - gpu_ns;
  const int64_t lower_ns = has_lower ? host_lower_ns - gpu_ns - fit_.quantum_ns : 0;
  if (contradicts(gpu_ns, upper_ns, lower_ns, has_lower)) {
    store_relaxed(n_contradictions_, n_contradictions_ + 1);
    if (n_contradictions_ >= kContradictions) restart();
  } else {
    store_relaxed(n_contradictions_, 0);
    roll(now_ns);
    if (improve(gpu_ns, upper_ns, lower_ns, has_lower)) publish();
  }
  note_quantum(gpu_ns);
  if (n_seen_ < kSettled) n_seen_++;
  set_gate();
  store_release(is_busy_, 0);
}

inline void GpuClock::map_by(const Fit& fit, int64_t gpu_ns, int64_t* host_ns, uint32_t* error_ns) {
  const int64_t upper_ns = upper_at(fit.upper, gpu_ns, fit.drift_low, fit.drift_high);
  // Carried by the likeliest drift, not by the loosest: what lasts on the GPU lasts as long on the host.
  *host_ns = gpu_ns + fit.upper.offset_ns + scaled((fit.drift_low + fit.drift_high) / 2, gpu_ns - fit.upper.gpu_ns);
  *error_ns = UINT32_MAX;
  if (fit.has_lower == 0) return;
  int64_t width_ns = upper_ns - lower_at(fit.lower, gpu_ns, fit.drift_low, fit.drift_high);
  if (width_ns < 0) width_ns = 0;
  width_ns += fit.quantum_ns;  // the stamp may be older than its event by so much
  if (width_ns < UINT32_MAX) *error_ns = static_cast<uint32_t>(width_ns);
}

bool GpuClock::map(int64_t gpu_ns, int64_t* host_ns, uint32_t* error_ns) const {
  Fit fit;
  if (gpu_ns <= 0 || gpu_ns > kLatestNs || !read(&fit) || fit.has_upper == 0) return false;
  map_by(fit, gpu_ns, host_ns, error_ns);
  return true;
}

bool GpuClock::map_span(const int64_t (&gpu_ns)[2], int64_t (&host_ns)[2], uint32_t* error_ns) const {
  Fit fit;
  for (const int64_t ns : gpu_ns)
    if (ns <= 0 || ns > kLatestNs) return false;
  if (!read(&fit) || fit.has_upper == 0) return false;
  uint32_t errors[2];
  for (int i = 0; i < 2; i++) map_by(fit, gpu_ns[i], &host_ns[i], &errors[i]);
  *error_ns = errors[0] > errors[1] ? errors[0] : errors[1];
  return true;
}

bool GpuClock::adds_nothing(int64_t gpu_ns, int64_t host_upper_ns, int64_t host_lower_ns, int64_t now_ns) const {
  if (now_ns >= load_relaxed(gate_.until_ns) || load_relaxed(n_contradictions_) != 0) return false;
  const int64_t low = load_relaxed(gate_.drift_low), high = load_relaxed(gate_.drift_high);
  const int64_t span_ns = gpu_ns - load_relaxed(gate_.upper.gpu_ns);
  if (span_ns > kFarNs || span_ns < -kFarNs) return false;
  const int64_t upper_ns = load_relaxed(gate_.upper.offset_ns) + ((span_ns * (span_ns > 0 ? high : low)) >> 40);
  if (host_upper_ns - gpu_ns <= upper_ns) return false;
  if (host_lower_ns == 0) return true;
  const int64_t back_ns = gpu_ns - load_relaxed(gate_.lower.gpu_ns);
  if (back_ns > kFarNs || back_ns < -kFarNs) return false;
  const int64_t lower_ns = load_relaxed(gate_.lower.offset_ns) + ((back_ns * (back_ns > 0 ? low : high)) >> 40);
  return host_lower_ns - gpu_ns - load_relaxed(gate_.quantum_ns) < lower_ns;
}

void GpuClock::set_gate() {
  const Window& window = windows_[newest_];
  const bool is_open = n_seen_ >= kSettled && window.has_upper != 0;
  store_relaxed(gate_.upper.gpu_ns, window.upper.gpu_ns);
  store_relaxed(gate_.upper.offset_ns, window.upper.offset_ns);
  store_relaxed(gate_.lower.gpu_ns, window.lower.gpu_ns);  // 0 while there is none: far from all stamps
  store_relaxed(gate_.lower.offset_ns, window.lower.offset_ns);
  store_relaxed(gate_.drift_low, static_cast<int64_t>(fit_.drift_low * (int64_t{1} << 40)));
  store_relaxed(gate_.drift_high, static_cast<int64_t>(fit_.drift_high * (int64_t{1} << 40)));
  store_relaxed(gate_.quantum_ns, fit_.quantum_ns);
  store_relaxed(gate_.until_ns, is_open ? window.number * kWindowNs : 0);
}

// Nothing that both clocks can do explains it: a wrong stamp, or one of the clocks was set.
bool GpuClock::contradicts(int64_t gpu_ns, int64_t upper_ns, int64_t lower_ns, bool has_lower) const {
  if (fit_.has_upper != 0) {
    const int64_t known = upper_at(fit_.upper, gpu_ns, fit_.drift_low, fit_.drift_high);
    if (upper_ns < known - kJumpNs || (has_lower && lower_ns > known)) return true;
  }
  return fit_.has_lower != 0 && upper_ns < lower_at(fit_.lower, gpu_ns, fit_.drift_low, fit_.drift_high);
}

void GpuClock::restart() {
  for (Window& window : windows_) window = {};
  fit_ = {};
  fit_.drift_low = -kMaxDrift;
  fit_.drift_high = kMaxDrift;
  fit_.quantum_ns = kCoarsestQuantumNs;
  last_gpu_ns_ = 0;
  n_contradictions_ = 0;
  n_seen_ = 0;
  has_started_ = 1;
  publish();
}

// The window of now; the oldest gives way, and with it what it said of the drift.
void GpuClock::roll(int64_t now_ns) {
  const int64_t number = now_ns / kWindowNs + 1;
  Window& window = windows_[number % kWindows];
  if (window.number >= number) return;
  window = {};
  window.number = number;
  newest_ = static_cast<uint32_t>(number % kWindows);
  renew_drift();
}

bool GpuClock::improve(int64_t gpu_ns, int64_t upper_ns, int64_t lower_ns, bool has_lower) {
  Window& window = windows_[newest_];
  const double low = fit_.drift_low, high = fit_.drift_high;
  bool is_better = false;
  if (window.has_upper == 0 || upper_ns <= upper_at(window.upper, gpu_ns, low, high)) {
    window.upper = {gpu_ns, upper_ns};
    window.has_upper = 1;
    narrow_drift(window.upper, true);
  }
  if (has_lower && (window.has_lower == 0 || lower_ns >= lower_at(window.lower, gpu_ns, low, high))) {
    window.lower = {gpu_ns, lower_ns};
    window.has_lower = 1;
    narrow_drift(window.lower, false);
  }
  if (fit_.has_upper == 0 || upper_ns <= upper_at(fit_.upper, gpu_ns, low, high)) {
    fit_.upper = {gpu_ns, upper_ns};
    fit_.has_upper = is_better = true;
  }
  if (has_lower && (fit_.has_lower == 0 || lower_ns >= lower_at(fit_.lower, gpu_ns, low, high))) {
    fit_.lower = {gpu_ns, lower_ns};
    fit_.has_lower = is_better = true;
  }
  return is_better;
}

// An upper bound here and a lower one there bound the slope between them.
void GpuClock::narrow_drift(const Bound& bound, bool is_upper) {
  for (const Window& window : windows_) {
    if ((is_upper ? window.has_lower : window.has_upper) == 0) continue;
    const Bound& other = is_upper ? window.lower : window.upper;
    const auto span_ns = static_cast<double>(bound.gpu_ns - other.gpu_ns);
    if (span_ns < kShortestBaseNs && span_ns > -kShortestBaseNs) continue;
    const double slope = static_cast<double>(bound.offset_ns - other.offset_ns) / span_ns;
    if (is_upper == (span_ns > 0)) fit_.drift_high = lesser(fit_.drift_high, slope + kDriftSlack);
    else fit_.drift_low = greater(fit_.drift_low, slope - kDriftSlack);
  }
  if (fit_.drift_low > fit_.drift_high) {  // it has changed meanwhile
    fit_.drift_low = -kMaxDrift;
    fit_.drift_high = kMaxDrift;
  }
}

void GpuClock::renew_drift() {
  fit_.drift_low = -kMaxDrift;
  fit_.drift_high = kMaxDrift;
  for (const Window& window : windows_)
    if (window.has_upper != 0) narrow_drift(window.upper, true);
}

// The smallest step between stamps is never smaller than the clock's own.
void GpuClock::note_quantum(int64_t gpu_ns) {
  const int64_t step_ns = gpu_ns > last_gpu_ns_ ? gpu_ns - last_gpu_ns_ : last_gpu_ns_ - gpu_ns;
  if (step_ns != 0 && step_ns < fit_.quantum_ns) fit_.quantum_ns = step_ns;
  last_gpu_ns_ = gpu_ns;
}

void GpuClock::publish() {
  const uint32_t version = load_relaxed(version_);
  exchange(version_, version + 1);
  const auto* from = reinterpret_cast<const word_t*>(&fit_);
  auto* to = reinterpret_cast<word_t*>(&published_);
  for (size_t i = 0; i < sizeof(Fit) / 8; i++) store_release(to[i], from[i]);
  store_release(version_, version + 2);
}

// Not while it is written: each word is read after the version, and the version again after all of them.
bool GpuClock::read(Fit* fit) const {
  const auto* from = reinterpret_cast<const word_t*>(&published_);
  auto* to = reinterpret_cast<word_t*>(fit);
  for (int i = 0; i < kReads; i++) {
    const uint32_t before = load_acquire(version_);
    COMMINSIGHT_UNROLL for (size_t word = 0; word < sizeof(Fit) / 8; word++) to[word] = load_acquire(from[word]);
    if ((before & 1) == 0 && load_relaxed(version_) == before) return true;
  }
  return false;
}

}  // namespace ci::nccl
