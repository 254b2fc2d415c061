// Communicators come and go; the process they live in.
#include <unistd.h>

#include <set>

#include "nccl.h"

namespace fake {
namespace {

const char* label_of(const CommSpec& spec) {
  static const auto* long_text = new std::string(4096, 'n');
  switch (spec.label) {
    case Label::kNull: return nullptr;
    case Label::kEmpty: return "";
    case Label::kLong: return long_text->c_str();
    case Label::kBad: return "bad\xff\xfe\xc3(name";
    default: return spec.text.c_str();
  }
}

std::string list_of(const std::vector<int>& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size(); i++) out += (i > 0 ? "," : "") + std::to_string(numbers[i]);
  return out + "]";
}

}  // namespace

bool Rank::init(Comm& comm) {
  if (comm.is_alive) return true;
  const CommSpec& spec = *comm.spec;
  const int per_node = process_.script.ranks_per_node;
  std::set<int> nodes;
  for (const int member : spec.members) nodes.insert(member / per_node);
  Plugin& plugin = process_.plugin;
  comm.is_alive = true;
  comm.context = nullptr;
  comm.is_active = plugin.acquire();
  if (comm.is_active) {
    const int n_nodes = static_cast<int>(nodes.size());
    const auto result = plugin.init(&comm.context, label_of(spec), spec.hash, n_nodes, comm.size(), comm.comm_rank);
    if (result != 0) {
      process_.arena.failed[rank_] = 1;  // our plugin never says no
      if (plugin.nccl().minor >= 30) plugin.release();
    }
  }
  Comm* parent = spec.parent.empty() ? nullptr : comm_of(spec.parent);
  comm.family = parent != nullptr && parent->family ? parent->family : std::make_shared<Family>(plugin.nccl());
  for (uint64_t& seq : comm.func_seq) seq = 0;
  comm.ce_seq = comm.call_seq = comm.n_collectives = 0;
  comm.n_p2p.clear();
  comm.has_graph = false;
  Json json;
  json.text("event", "comm").number("rank", rank_).number("pid", getpid());
  json.text("comm", spec.name).hex("hash", spec.hash);
  json.number("comm_rank", comm.comm_rank).raw("members", list_of(spec.members)).number("life", comm.life);
  process_.log.line(json.hex("context", reinterpret_cast<uintptr_t>(comm.context)));
  return comm.is_active;
}

void Rank::finalize(Comm& comm, bool waits) {
  if (!comm.is_alive) return;
  if (waits) await([&] { return is_quiet(&comm); }, "the GPU before finalize");
  {
    std::lock_guard<std::mutex> lock(host_mutex_);
    comm.is_alive = false;
    comm.life++;
  }
  // Pending ops of the communicator are forgotten without a callback.
  comm.family->of_kernels().drop(&comm);
  comm.family->proxy.drop(&comm);
  gpu_.drop(&comm);
  comm.family = nullptr;  // its threads end, unless a relative still has them
  if (comm.is_active) {
    process_.plugin.finalize(comm.context);
    process_.plugin.release();
  }
  comm.is_active = false;
}

void Rank::abort(Comm& comm) { finalize(comm, false); }

void Process::chaos(bool is_on) {
  std::lock_guard<std::mutex> lock(chaos_mutex_);
  is_chaos_ = is_on;
  if (is_on && !chaos_.joinable())
    chaos_ = std::thread([this] {
      std::mt19937_64 random(script.seed);
      while (is_chaos_) {
        plugin.set_mask(static_cast<int32_t>(random() & 0xFFFF));
        usleep(50);
      }
    });
  if (!is_on && chaos_.joinable()) chaos_.join();
}

Process::~Process() { chaos(false); }

// Time passes on the GPUs even when nobody looks.
void Process::tick() {
  bool has_changed = false;
  for (const auto& rank : ranks) has_changed = rank->gpu().advance(mono_ns()) || has_changed;
  usleep(has_changed ? 50 : 500);
}

}  // namespace fake
