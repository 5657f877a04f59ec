// What the emulator's tests share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metal_emu/compile.h"

namespace metal_emu::test {

inline constexpr const char* kHeader = "#include <metal_stdlib>\nusing namespace metal;\n";

// Compiles all kernels of a text. A failure fails the test with the compiler's words.
inline Compiled compile_all(const std::string& source, bool check, Profile profile = Profile::m1) {
    std::string error;
    const Library library = parse(source, &error);
    EXPECT_EQ(error, "");
    CompileOptions options;
    options.check = check;
    options.address_spaces = !check;
    options.profile = profile;
    Compiled compiled = compile(library, {}, {}, options);
    EXPECT_TRUE(compiled.ok) << compiled.log;
    return compiled;
}

inline Launch launch_of(const Compiled& compiled, const char* name, bool check) {
    Launch l;
    const auto it = compiled.entries.find(std::string_view(name));
    EXPECT_NE(it, compiled.entries.end()) << name;
    if (it != compiled.entries.end()) l.entry = it->second;
    l.name = name;
    l.image_low = compiled.image_low;
    l.image_high = compiled.image_high;
    l.check = check;
    return l;
}

template <typename T>
void bind(Launch& l, int index, std::vector<T>& values, bool read_only = false) {
    l.buffers[index] = values.data();
    l.bytes[index] = values.size() * sizeof(T);
    l.read_only[index] = read_only;
}

inline std::string joined(const std::vector<std::string>& findings) {
    std::string all;
    for (const std::string& f : findings) all += f + "\n";
    return all;
}

}  // namespace metal_emu::test
