// Runs the built `forge` as a user's shell would, with pipes for its three streams.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace forge::test {

struct Finished {
    int status = -1;  // exit status; 128 + n when a signal ended it
    std::string out, err;
};

struct RunOptions {
    std::string input = {};                              // its standard input
    std::vector<std::string> environment = {};      // NAME=VALUE, added
    // Called when `out` has grown; a nonzero result is sent to the process as a signal.
    std::function<int(const std::string& out)> on_output = {};
    // Called every now and then; likewise.
    std::function<int()> on_wait = {};
    int timeout_seconds = 120;
};

Finished run_forge(const std::vector<std::string>& arguments, const RunOptions& options = {});

// tests/data/models/NAME
std::string tiny_model(const std::string& name);

// Writes a file below this test program's own temporary folder and returns its path.
std::string write_temporary(const std::string& name, const std::string& content);

}  // namespace forge::test
