// Counts the calls of operator new in this process, for tests of code that must not allocate.
#pragma once

#include <cstddef>

namespace forge::test {
std::size_t allocations();
}
