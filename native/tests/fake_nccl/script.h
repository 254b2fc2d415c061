// A scenario as it stands in its file (LANGUAGE.md), parsed and checked.
#ifndef FAKE_NCCL_SCRIPT_H
#define FAKE_NCCL_SCRIPT_H
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "release.h"

namespace fake {

constexpr int kMaxRanks = 64;
using RankSet = uint64_t;

struct ClockSpec {
  int64_t base_ns = 0;
  int64_t drift_ppm = 0;
  int64_t quantum_ns = 32;
};

enum class Label { kText, kNull, kEmpty, kLong, kBad };

// One communicator; a `comm` line with several member lists makes several.
struct CommSpec {
  std::string name;
  std::string text;
  Label label = Label::kText;
  std::vector<int> members;
  uint64_t hash = 0;
  std::string parent;
  bool is_nonblocking = false;
  bool is_lazy = false;
};

enum class Via { kKernel, kNone, kCe, kSymmetric };
enum class Children { kNatural, kBefore, kAfter, kLate };
enum class Stamps { kGood, kZero, kReversed, kLagging, kSame, kNoStart };
enum class Blocked { kNowhere, kApi, kConnect, kLaunch };

enum class Func {
  kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce,  // collectives of kernels
  kSend, kRecv,
  kAllToAll, kGather, kScatter,  // sends and receives for NCCL
};
bool is_collective(Func func);  // a collective for NCCL's kernels
const char* func_name(Func func);

struct DataType {
  const char* word;  // in scripts
  const char* name;  // what NCCL says
  int bytes;
};

struct Stuck {
  int state = 0;  // 0: not at all
  int step = 0;
};

struct Op {
  Func func = Func::kAllReduce;
  size_t count = 1024;
  const DataType* dtype = nullptr;
  int root = 0;
  int peer = 0;
  bool is_peer_relative = false;
  int stream = 1;
  uint64_t channels = 0xF;
  std::string algo = "RING";
  std::string proto = "SIMPLE";
  uint64_t tag = 0;
  int64_t duration_ns = 30000;
  Via via = Via::kKernel;
  int stated_channels = -1;
  Children children = Children::kNatural;
  Stamps stamps = Stamps::kGood;
  int n_transfers = 0;
  int n_credits = 1;
  bool is_stop_first = false;
  bool never_starts = false;
  int64_t start_delay_ns = 0;
  uint64_t dead = 0;
  Stuck send_stuck;
  Stuck recv_stuck;
  Blocked blocked = Blocked::kNowhere;
};

enum class Verb {
  kOp, kGroup, kGroupEnd, kSync, kDelay, kBarrier, kCapture, kCaptureEnd, kReplay, kBlockingLaunch, kHostBusy, kInit, kFinalize,
  kAbort, kReload, kFork, kKill, kExit, kCrash, kMask, kChaos, kForeign, kProxyCtrl, kNetPlugin, kBad,
};

struct Step {
  int line = 0;
  RankSet who = 0;
  bool is_exact = false;  // ranks are named: each must be a member
  Verb verb = Verb::kOp;
  std::string comm;
  std::string word;   // kind of fork, bad call, graph
  int64_t value = 0;  // time, mask, plans, on/off
  int times = 1;
  Op op;
};

enum class Leave { kFinalize, kExit, kKill, kAbort };

struct Script {
  std::string path;
  Release release;
  int n_ranks = 1;
  bool is_threads = false;
  bool is_alone = false;  // no other rank is there, and none is waited for (--probe)
  int ranks_per_node = kMaxRanks;
  std::string plugin;
  bool has_plugin = false;
  bool is_plugin_unset = false;
  std::vector<CommSpec> comms;
  ClockSpec clocks[kMaxRanks];
  bool is_poisoning = true;
  int64_t patience_ns = 5000000000;
  uint64_t seed = 1;
  std::vector<Step> steps;
  std::vector<int> order;  // indices into steps, repeats written out
  bool is_holding = false;
  int64_t hold_ns = -1;  // -1: until told
  Leave leave = Leave::kFinalize;

  // The communicator `name` of a rank, -1 when it is in none of that name.
  int comm_of(const std::string& name, int rank) const;
  bool has_comm(const std::string& name) const;
};

// Reads a script; false: `error` says file, line and what is wrong.
bool parse_script(const std::string& path, const std::string& text, Script* out, std::string* error);

// Values of one line; each returns false for what it cannot read.
bool parse_number(const std::string& text, int64_t* out);                // 12, 0x1F, 4k, 2M
bool parse_time_ns(const std::string& text, int64_t* out);               // 500, 500us, 20ms
bool parse_set(const std::string& text, int limit, std::vector<int>* out);  // 0-3,8
bool parse_mask(const std::string& text, int64_t* out);
const DataType* data_type(const std::string& word);
std::vector<std::string> words_of(const std::string& line);
// Sets one `key=value` of an op; an empty string when it was understood.
std::string set_option(const std::string& key, const std::string& value, Op* op);

}  // namespace fake
#endif
