#include "script.h"

#include <cstring>
#include <functional>

namespace fake {
namespace {

constexpr size_t kMaxSteps = 4u << 20;

struct VerbWord {
  const char* word;
  Verb verb;
  Func func;
};
constexpr VerbWord kVerbs[] = {
    {"all_reduce", Verb::kOp, Func::kAllReduce},
    {"all_gather", Verb::kOp, Func::kAllGather},
    {"reduce_scatter", Verb::kOp, Func::kReduceScatter},
    {"broadcast", Verb::kOp, Func::kBroadcast},
    {"reduce", Verb::kOp, Func::kReduce},
    {"all_to_all", Verb::kOp, Func::kAllToAll},
    {"gather", Verb::kOp, Func::kGather},
    {"scatter", Verb::kOp, Func::kScatter},
    {"send", Verb::kOp, Func::kSend},
    {"recv", Verb::kOp, Func::kRecv},
    {"group", Verb::kGroup, {}},
    {"sync", Verb::kSync, {}},
    {"delay", Verb::kDelay, {}},
    {"barrier", Verb::kBarrier, {}},
    {"capture", Verb::kCapture, {}},
    {"replay", Verb::kReplay, {}},
    {"blocking_launch", Verb::kBlockingLaunch, {}},
    {"host_busy", Verb::kHostBusy, {}},
    {"init", Verb::kInit, {}},
    {"finalize", Verb::kFinalize, {}},
    {"abort", Verb::kAbort, {}},
    {"reload", Verb::kReload, {}},
    {"fork", Verb::kFork, {}},
    {"kill", Verb::kKill, {}},
    {"exit", Verb::kExit, {}},
    {"crash", Verb::kCrash, {}},
    {"mask", Verb::kMask, {}},
    {"chaos", Verb::kChaos, {}},
    {"foreign", Verb::kForeign, {}},
    {"proxy_ctrl", Verb::kProxyCtrl, {}},
    {"net_plugin", Verb::kNetPlugin, {}},
    {"bad", Verb::kBad, {}},
};
constexpr const char* kWho = "all:, rank N:, ranks N-M: or not N:";
constexpr const char* kEnds = "end finalize, hold, exit, kill or abort";
constexpr std::pair<const char*, Label> kLabels[] = {
    {"none", Label::kNull}, {"empty", Label::kEmpty}, {"long", Label::kLong}, {"bad", Label::kBad}};
constexpr const char* kBadCalls[] = {"null", "state",  "type", "stop_twice", "stale", "parent",
                                     "handle", "late", "strings"};

// FNV-1a: equal names and members have equal hashes on all ranks.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char byte : text) hash = (hash ^ byte) * 1099511628211u;
  return hash;
}

class Parser {
 public:
  Parser(Script* script, std::string* error) : script_(*script), error_(*error) {}

  bool run(const std::string& text) {
    size_t begin = 0;
    while (begin <= text.size()) {
      size_t end = text.find('\n', begin);
      if (end == std::string::npos) end = text.size();
      line_++;
      if (!take_line(text.substr(begin, end - begin))) return false;
      begin = end + 1;
    }
    return finish();
  }

 private:
  bool fail(const std::string& what) {
    error_ = script_.path + ":" + std::to_string(line_) + ": " + what;
    return false;
  }

  bool take_line(const std::string& line) {
    std::vector<std::string> words = words_of(line);
    if (words.empty()) return true;
    if (has_ended_) return fail("nothing may follow the line 'end'");
    if (words[0] == "repeat") return take_repeat(words);
    if (words[0] == "end") return take_end(words);
    size_t colon = words[0] == "all:" ? 0 : std::string::npos;
    if (words.size() > 1 && words[1].back() == ':') colon = 1;
    if (colon == std::string::npos && !is_header_closed_) return take_header(words);
    if (colon == std::string::npos) return fail("'" + words[0] + "': a step begins with " + kWho);
    if (!is_header_closed_ && !close_header()) return false;
    return take_step(words, colon);
  }

  // ---- header

  bool take_header(const std::vector<std::string>& words) {
    const std::string& key = words[0];
    if (words.size() < 2) return fail("'" + key + "' needs a value");
    const std::string& value = words[1];
    if (key == "release") {
      std::string text = value;
      for (size_t i = 2; i < words.size(); i++) text += " " + words[i];
      return parse_release(text, &script_.release) || fail("there is no release '" + text + "'");
    }
    if (key == "comm") return keep_comm(words);
    if (key == "clock") return take_clock(words);
    if (words.size() > 2) return fail("'" + key + "' has one value");
    return take_setting(key, value);
  }

  bool take_setting(const std::string& key, const std::string& value) {
    int64_t number = 0;
    const bool is_number = parse_number(value, &number);
    if (key == "ranks") {
      script_.n_ranks = static_cast<int>(number);
      return (is_number && number >= 1 && number <= kMaxRanks) || fail("ranks are 1 to 64");
    }
    if (key == "layout") {
      script_.is_threads = value == "threads";
      return value == "threads" || value == "processes" || fail("layout is processes or threads");
    }
    if (key == "ranks_per_node") {
      script_.ranks_per_node = static_cast<int>(number);
      return (is_number && number >= 1) || fail("ranks_per_node is a number from 1");
    }
    if (key == "plugin") {
      script_.has_plugin = true;
      script_.is_plugin_unset = value == "unset";
      script_.plugin = value;
      return true;
    }
    if (key == "poison") {
      script_.is_poisoning = value == "on";
      return value == "on" || value == "off" || fail("poison is on or off");
    }
    if (key == "patience") return parse_time_ns(value, &script_.patience_ns) || fail("'" + value + "' is no time");
    if (key == "seed") return script_.seed = static_cast<uint64_t>(number), is_number || fail("seed is a number");
    return fail("there is no header line '" + key + "', and a step begins with WHO and a colon");
  }

  // Members may be named before `ranks`: comm and clock lines wait for the end of the header.
  bool keep_comm(const std::vector<std::string>& words) {
    comm_lines_.push_back({line_, words});
    return words.size() >= 3 || fail("comm NAME MEMBERS");
  }
  bool take_clock(const std::vector<std::string>& words) {
    clock_lines_.push_back({line_, words});
    return words.size() >= 3 || fail("clock WHO key=value");
  }

  bool close_header() {
    is_header_closed_ = true;
    const int here = line_;
    for (int rank = 0; rank < kMaxRanks; rank++)
      script_.clocks[rank].base_ns = 1700000000000000000 + rank * 1000000000000000;
    if (comm_lines_.empty()) comm_lines_.push_back({line_, {"comm", "world", "all"}});
    for (const auto& [line, words] : comm_lines_)
      if (line_ = line; !add_comms(words)) return false;
    for (const auto& [line, words] : clock_lines_)
      if (line_ = line; !set_clock(words)) return false;
    line_ = here;
    return true;
  }

  bool add_comms(const std::vector<std::string>& words) {
    CommSpec shape;
    shape.name = shape.text = words[1];
    std::vector<std::vector<int>> lists;
    bool has_hash = false;
    for (size_t i = 2; i < words.size(); i++) {
      std::vector<int> members;
      if (words[i] == "all") {
        for (int rank = 0; rank < script_.n_ranks; rank++) members.push_back(rank);
      } else if (!isdigit(words[i][0]) || !parse_set(words[i], script_.n_ranks, &members)) {
        if (!comm_option(words[i], &shape, &has_hash)) return false;
        continue;
      }
      lists.push_back(members);
    }
    if (lists.empty()) return fail("comm " + shape.name + " has no members");
    for (std::vector<int>& members : lists)
      if (!add_comm(shape, members, has_hash)) return false;
    return true;
  }

  bool comm_option(const std::string& word, CommSpec* shape, bool* has_hash) {
    const size_t equal = word.find('=');
    const std::string key = word.substr(0, equal), value = equal == std::string::npos ? "" : word.substr(equal + 1);
    if (word == "nonblocking") return shape->is_nonblocking = true;
    if (word == "lazy") return shape->is_lazy = true;
    if (key == "hash" && !value.empty()) {
      shape->hash = strtoull(value.c_str(), nullptr, 0);
      return *has_hash = true;
    }
    if (key == "label" && !value.empty()) {
      shape->text = value;
      for (const auto& [word, label] : kLabels)
        if (value == word) shape->label = label;
      return true;
    }
    if (key == "parent") {
      shape->parent = value;
      return script_.has_comm(value) || fail("there is no communicator '" + value + "' above");
    }
    const std::string limit = std::to_string(script_.n_ranks);
    return fail("'" + word + "' is neither members below " + limit + " nor an option of comm");
  }

  bool add_comm(const CommSpec& shape, const std::vector<int>& members, bool has_hash) {
    RankSet seen = 0;
    std::string identity = shape.parent + "/" + shape.name;
    for (int rank : members) {
      const std::string who = "rank " + std::to_string(rank);
      if (seen >> rank & 1) return fail(who + " is twice in " + shape.name);
      if (script_.comm_of(shape.name, rank) >= 0) return fail(who + " is in two communicators " + shape.name);
      seen |= RankSet{1} << rank;
      identity += "," + std::to_string(rank);
    }
    script_.comms.push_back(shape);
    script_.comms.back().members = members;
    if (!has_hash) script_.comms.back().hash = hash_of(identity);
    return true;
  }

  bool set_clock(const std::vector<std::string>& words) {
    RankSet who = 0;
    bool is_exact = false;
    size_t at = words[1] == "all" ? 1 : 2;
    if (!parse_who(words[1], at == 1 ? "" : words[2], &who, &is_exact)) return false;
    for (at++; at < words.size(); at++) {
      const size_t equal = words[at].find('=');
      int64_t value = 0;
      if (equal == std::string::npos || !parse_number(words[at].substr(equal + 1), &value))
        return fail("'" + words[at] + "' is no key=number");
      const std::string key = words[at].substr(0, equal);
      for (int rank = 0; rank < script_.n_ranks; rank++) {
        if (!(who >> rank & 1)) continue;
        ClockSpec& clock = script_.clocks[rank];
        if (key == "base") clock.base_ns = value;
        else if (key == "drift") clock.drift_ppm = value;
        else if (key == "quantum" && value > 0) clock.quantum_ns = value;
        else return fail("clock has base, drift and quantum (from 1)");
      }
    }
    return true;
  }

  // ---- steps

  bool parse_who(const std::string& word, std::string ranks, RankSet* who, bool* is_exact) {
    const RankSet everybody = script_.n_ranks == 64 ? ~RankSet{0} : (RankSet{1} << script_.n_ranks) - 1;
    if (!ranks.empty() && ranks.back() == ':') ranks.pop_back();
    *who = everybody;
    if (word == "all" || word == "all:") return true;
    std::vector<int> list;
    if (!parse_set(ranks, script_.n_ranks, &list))
      return fail("'" + ranks + "' are no ranks below " + std::to_string(script_.n_ranks));
    RankSet named = 0;
    for (int rank : list) named |= RankSet{1} << rank;
    *is_exact = word == "rank" || word == "ranks";
    *who = word == "not" ? everybody & ~named : named;
    return *is_exact || word == "not" || fail("'" + word + "': a step begins with " + kWho);
  }

  bool take_step(const std::vector<std::string>& words, size_t colon) {
    Step step;
    step.line = line_;
    step.op.dtype = data_type("float32");
    if (!parse_who(words[0], colon == 0 ? "" : words[1], &step.who, &step.is_exact)) return false;
    std::vector<std::string> rest(words.begin() + static_cast<int>(colon) + 1, words.end());
    if (rest.empty()) return fail("what shall they do?");
    int64_t times = 0;
    if (rest.size() > 1 && rest.back()[0] == 'x' && parse_number(rest.back().substr(1), &times)) {
      if (times < 1) return fail("x" + std::to_string(times) + " is not at least once");
      step.times = static_cast<int>(times);
      rest.pop_back();
    }
    for (const VerbWord& verb : kVerbs)
      if (rest[0] == verb.word) {
        step.verb = verb.verb;
        step.op.func = verb.func;
        rest.erase(rest.begin());
        return take_arguments(&step, rest) && keep(step);
      }
    return fail("there is no verb '" + rest[0] + "'");
  }

  bool keep(const Step& step) {
    if (!step.comm.empty() && !check_members(step)) return false;
    script_.order.push_back(static_cast<int>(script_.steps.size()));
    script_.steps.push_back(step);
    return true;
  }

  bool check_members(const Step& step) {
    if (!script_.has_comm(step.comm)) return fail("there is no communicator '" + step.comm + "'");
    for (int rank = 0; rank < script_.n_ranks; rank++) {
      if (!(step.who >> rank & 1)) continue;
      const int comm = script_.comm_of(step.comm, rank);
      if (comm < 0 && step.is_exact) return fail("rank " + std::to_string(rank) + " is not in " + step.comm);
      if (comm < 0 || step.verb != Verb::kOp) continue;
      if (!check_peer(step.op, script_.comms[static_cast<size_t>(comm)])) return false;
    }
    return true;
  }

  bool check_peer(const Op& op, const CommSpec& comm) {
    const int size = static_cast<int>(comm.members.size());
    const bool is_p2p = op.func == Func::kSend || op.func == Func::kRecv;
    if (is_p2p && !op.is_peer_relative && (op.peer < 0 || op.peer >= size))
      return fail("there is no comm_rank " + std::to_string(op.peer) + " in " + comm.name);
    return op.root < size || fail("there is no root " + std::to_string(op.root) + " in " + comm.name);
  }

  bool take_arguments(Step* step, std::vector<std::string>& rest) {
    switch (step->verb) {
      case Verb::kOp: return take_op(step, rest);
      case Verb::kGroup: return take_group(step, rest);
      case Verb::kCapture:
      case Verb::kReplay: return take_graph(step, rest);
      case Verb::kSync:
      case Verb::kBarrier:
      case Verb::kReload:
      case Verb::kKill:
      case Verb::kExit:
      case Verb::kCrash: return rest.empty() || fail("'" + rest[0] + "' is too much here");
      case Verb::kDelay:
        return (rest.size() == 1 && parse_time_ns(rest[0], &step->value)) || fail("delay TIME");
      case Verb::kHostBusy:
        if (rest.size() == 2) step->comm = rest[0];
        return (rest.size() == 2 && parse_time_ns(rest[1], &step->value)) || fail("host_busy COMM TIME");
      case Verb::kMask:
        return (rest.size() == 1 && parse_mask(rest[0], &step->value)) || fail("mask VALUE");
      case Verb::kBlockingLaunch:
      case Verb::kChaos:
        step->value = !rest.empty() && rest[0] == "on";
        return (rest.size() == 1 && (rest[0] == "on" || rest[0] == "off")) || fail("on or off");
      case Verb::kFork:
        step->word = rest.empty() ? "" : rest[0];
        return step->word == "_exit" || step->word == "exit" || step->word == "use" || fail("fork _exit, exit or use");
      case Verb::kBad: return take_bad(step, rest);
      default: break;
    }
    if (rest.empty()) return fail("which communicator?");
    step->comm = rest[0];
    return take_foreign(step, rest);
  }

  bool take_op(Step* step, std::vector<std::string>& rest) {
    if (rest.empty()) return fail("which communicator?");
    step->comm = rest[0];
    const Func func = step->op.func;
    if (!is_collective(func)) step->op.channels = 0x3;
    bool has_peer = false;
    for (size_t i = 1; i < rest.size(); i++) {
      const size_t equal = rest[i].find('=');
      if (equal == std::string::npos) return fail("'" + rest[i] + "' is no key=value");
      const std::string key = rest[i].substr(0, equal);
      const std::string wrong = set_option(key, rest[i].substr(equal + 1), &step->op);
      if (!wrong.empty()) return fail(wrong);
      has_peer = has_peer || (key == "to" && func == Func::kSend) || (key == "from" && func == Func::kRecv);
    }
    if (func == Func::kSend && !has_peer) return fail("send needs to=");
    if (func == Func::kRecv && !has_peer) return fail("recv needs from=");
    return true;
  }

  bool take_group(Step* step, std::vector<std::string>& rest) {
    if (rest.empty()) return true;
    step->verb = Verb::kGroupEnd;
    step->value = 1;
    if (rest[0] != "end" || rest.size() > 2) return fail("group, or group end [plans=N]");
    if (rest.size() == 1) return true;
    const bool is_plans = rest[1].compare(0, 6, "plans=") == 0 && parse_number(rest[1].substr(6), &step->value);
    return (is_plans && step->value >= 1) || fail("plans=N, from 1");
  }

  bool take_graph(Step* step, std::vector<std::string>& rest) {
    if (rest.size() != 1) return fail("which graph?");
    step->word = rest[0];
    if (step->verb == Verb::kCapture && rest[0] == "end") step->verb = Verb::kCaptureEnd;
    return true;
  }

  bool take_bad(Step* step, std::vector<std::string>& rest) {
    step->word = rest.empty() ? "" : rest[0];
    for (const char* known : kBadCalls) {
      if (step->word != known) continue;
      if (step->word == "null") return rest.size() == 1 || fail("bad null names no communicator");
      if (rest.size() != 2) return fail("bad " + step->word + " COMM");
      step->comm = rest[1];
      return true;
    }
    return fail("there is no bad call '" + step->word + "'");
  }

  bool take_foreign(Step* step, std::vector<std::string>& rest) {
    step->value = 2;
    step->op.channels = 0x3;
    if (rest.size() > 1 && step->verb != Verb::kForeign) return fail("'" + rest[1] + "' is too much here");
    for (size_t i = 1; i < rest.size(); i++) {
      if (rest[i].compare(0, 6, "steps=") == 0 && parse_number(rest[i].substr(6), &step->value)) continue;
      if (rest[i].compare(0, 9, "channels=") != 0 || !set_option("channels", rest[i].substr(9), &step->op).empty())
        return fail("foreign COMM [steps=N] [channels=…]");
    }
    return true;
  }

  // ---- repeat and end

  bool take_repeat(const std::vector<std::string>& words) {
    if (!is_header_closed_ && !close_header()) return false;
    int64_t times = 0;
    if (words.size() != 2) return fail("repeat N, or repeat end");
    if (words[1] != "end") {
      if (!parse_number(words[1], &times) || times < 1) return fail("repeat N, or repeat end");
      repeats_.push_back({script_.order.size(), times});
      return true;
    }
    if (repeats_.empty()) return fail("there is nothing to repeat");
    const auto [begin, n] = repeats_.back();
    repeats_.pop_back();
    const std::vector<int> body(script_.order.begin() + static_cast<long>(begin), script_.order.end());
    if (body.size() * static_cast<size_t>(n) > kMaxSteps) return fail("that is more than 4 million steps");
    for (int64_t i = 1; i < n; i++) script_.order.insert(script_.order.end(), body.begin(), body.end());
    return true;
  }

  bool take_end(const std::vector<std::string>& words) {
    has_ended_ = true;
    if (words.size() < 2) return fail(kEnds);
    if (words[1] != "hold") return (words.size() == 2 && parse_leave(words[1])) || fail(kEnds);
    script_.is_holding = true;
    script_.leave = Leave::kExit;
    for (size_t i = 2; i < words.size(); i++) {
      const bool is_leave = words[i].compare(0, 5, "then=") == 0;
      if (is_leave ? !parse_leave(words[i].substr(5)) : !parse_time_ns(words[i], &script_.hold_ns))
        return fail("end hold [TIME] [then=exit|kill|abort|finalize]");
    }
    return true;
  }

  bool parse_leave(const std::string& word) {
    if (word == "finalize") script_.leave = Leave::kFinalize;
    else if (word == "exit") script_.leave = Leave::kExit;
    else if (word == "kill") script_.leave = Leave::kKill;
    else if (word == "abort") script_.leave = Leave::kAbort;
    else return false;
    return true;
  }

  bool finish() {
    if (!repeats_.empty()) return fail("a repeat has no end");
    return is_header_closed_ || close_header();
  }

  Script& script_;
  std::string& error_;
  int line_ = 0;
  bool is_header_closed_ = false;
  bool has_ended_ = false;
  std::vector<std::pair<int, std::vector<std::string>>> comm_lines_, clock_lines_;
  std::vector<std::pair<size_t, int64_t>> repeats_;
};

}  // namespace

int Script::comm_of(const std::string& name, int rank) const {
  for (size_t i = 0; i < comms.size(); i++)
    for (int member : comms[i].members)
      if (member == rank && comms[i].name == name) return static_cast<int>(i);
  return -1;
}

bool Script::has_comm(const std::string& name) const {
  for (const CommSpec& comm : comms)
    if (comm.name == name) return true;
  return false;
}

bool parse_script(const std::string& path, const std::string& text, Script* out, std::string* error) {
  out->path = path;
  return Parser(out, error).run(text);
}

}  // namespace fake
