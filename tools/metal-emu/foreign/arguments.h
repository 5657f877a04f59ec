// Argument structures of C headers, read at run time, so that fields are set by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "foreign/harness.h"

namespace metal_emu::foreign {

class Header {
  public:
    struct Field {
        std::size_t offset, size;
        int count;
    };
    struct Structure {
        std::map<std::string, Field> fields;
        std::size_t bytes = 0;
    };
    // `typedef struct { ... } name;` of plain fields, and `#define NAME number`.
    explicit Header(const std::string& path);
    const Structure& structure(const std::string& name) const;
    long macro(const std::string& name) const;

  private:
    std::map<std::string, Structure> structures_;
    std::map<std::string, long> macros_;
};

// One structure's bytes. Fields that this version of the header does not have are left out.
class Arguments {
  public:
    Arguments(const Header& header, const std::string& name) : structure_(header.structure(name)), bytes_(structure_.bytes) {}
    Arguments& set(const std::string& field, long value, int index = 0);
    Arguments& set_float(const std::string& field, float value);
    // field0, field1, ...: the strides or sizes of one tensor.
    Arguments& set_all(const std::string& stem, const std::string& tail, std::initializer_list<long> values);
    Bound bound() const { return in(bytes_); }

  private:
    const Header::Structure& structure_;
    std::vector<char> bytes_;
};

}  // namespace metal_emu::foreign
