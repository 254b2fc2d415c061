// Processes of a scenario: started, watched, told to leave.
#ifndef FAKE_NCCL_RANKS_H
#define FAKE_NCCL_RANKS_H
#include <string>

#include "log.h"
#include "script.h"

namespace fake {

// Plays a script to its end; the exit status of the program.
int play_script(const Script& script, Log& log, bool is_quiet);

// One load, one communicator of two ranks of which only the first is there, one AllReduce; prints a JSON object.
int probe(const Release& release);
int list_releases();

}  // namespace fake
#endif
