#include "foreign/survey.h"

#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include "metal_emu/compile.h"

namespace metal_emu::foreign {
namespace {

// C++ cannot assign or index a struct in place in another address space; Metal can.
bool is_our_limit(const std::string& error) {
    return error.find("no viable overloaded '='") != std::string::npos || error.find("no viable overloaded operator[] for type '") != std::string::npos ||
           error.find("fatal error: too many") != std::string::npos;
}

std::vector<std::string> errors_of(const std::string& log) {
    std::vector<std::string> errors;
    std::set<std::string> seen;
    std::stringstream lines(log);
    for (std::string line; std::getline(lines, line);)
        if (line.find("error:") != std::string::npos && seen.insert(line).second) errors.push_back(line);
    return errors;
}

struct Counts {
    std::size_t kernels = 0, plain = 0, spaces = 0, our_limit = 0;
};

std::vector<std::string> errors_with(const Library& library, const std::vector<std::string>& names, const std::vector<FunctionConstant>& constants, bool cxx17, bool spaces) {
    CompileOptions o;
    o.syntax_only = true;
    o.cxx17 = cxx17;
    o.address_spaces = spaces;
    const Compiled c = compile(library, names, constants, o);
    if (c.ok) return {};
    std::vector<std::string> errors = errors_of(c.log);
    if (errors.empty()) errors.push_back(c.log);
    return errors;
}

void print(const char* what, const std::vector<std::string>& errors) {
    for (std::size_t i = 0; i < errors.size() && i < 8; i++) std::printf("    %s %s\n", what, errors[i].substr(0, 230).c_str());
    if (errors.size() > 8) std::printf("    and %zu more\n", errors.size() - 8);
}

void survey_file(const std::string& file, const SurveyOptions& o, Counts& counts) {
    const std::string name = file.substr(file.rfind('/') + 1);
    std::string error;
    const std::string text = preprocess(file, o.folders, o.defines, &error);
    Library library;
    if (error.empty()) library = parse(text, &error);
    if (!error.empty()) {
        std::printf("%s: %s\n", name.c_str(), error.substr(0, 500).c_str());
        counts.kernels++;   // so that it is not lost
        return;
    }
    library.preprocessed = true;
    std::vector<FunctionConstant> constants = declared_constants(text);
    for (FunctionConstant& c : constants)
        if (c.type != "bool") c.value = "4";   // some value: other constants divide by it
    const std::size_t n = library.functions.size();
    counts.kernels += n;
    if (n == 0) {
        std::printf("%-26s no kernel\n", name.c_str());
        return;
    }
    const auto plain = errors_with(library, {}, constants, o.cxx17, false), spaces = errors_with(library, {}, constants, o.cxx17, true);
    std::printf("%-26s %4zu kernels, %2zu constants: %s, with address spaces %s\n", name.c_str(), n, constants.size(), plain.empty() ? "compiled" : "ERRORS",
                spaces.empty() ? "too" : "not");
    if (plain.empty()) counts.plain += n;
    print("", plain);
    if (spaces.empty()) {
        counts.spaces += n;
        return;
    }
    std::size_t alone = 0;
    if (o.each)
        for (const Function& f : library.functions) alone += errors_with(library, {f.name}, constants, o.cxx17, true).empty();
    counts.spaces += alone;
    std::vector<std::string> others;
    for (const std::string& e : spaces)
        if (!is_our_limit(e)) others.push_back(e);
    if (others.empty()) counts.our_limit += n - alone;
    print("with address spaces:", others);
    if (o.each) std::printf("    one by one %zu of them pass\n", alone);
}

}  // namespace

bool survey(const SurveyOptions& options) {
    setenv("METAL_EMU_CXXFLAGS", "-ferror-limit=0", 1);
    Counts counts;
    for (const std::string& file : options.files) survey_file(file, options, counts);
    std::printf("%zu kernels: %zu compile; with address spaces %zu, and %zu more but for structs assigned or indexed in place in another address space\n", counts.kernels, counts.plain,
                counts.spaces, counts.our_limit);
    return counts.plain == counts.kernels && counts.spaces + counts.our_limit == counts.kernels;
}

}  // namespace metal_emu::foreign
