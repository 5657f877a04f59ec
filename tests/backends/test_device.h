#pragma once

#include <string>

namespace forge::test {

// The device this program tests, registered and ready ("cuda", "metal"); empty with a reason when it is not here.
std::string test_device(std::string* reason);
// Whether a model is part of this program's sample (slow devices take a few of each kind).
bool in_sample(const std::string& model);
// Slow devices also take fewer types and numbers of rows.
bool quick();
// FORGE_TEST_MODELS' smollm2-135m*.gguf; empty: there is none.
std::string smollm2_file();

}  // namespace forge::test
