// A schema document: its schemas by number, and what each says on its own.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shape.h"

namespace forge::grammar {

// The keywords of one schema. Those that combine schemas are kept as they stand.
struct Keywords {
    bool never = false;            // the schema is `false`
    Shape own;
    int reference = -1;
    std::vector<int> all_of;
    std::vector<int> any_of, one_of;
    bool has_any = false, has_one = false;
    unsigned excluded = 0;         // types that `not` takes away
};

class SchemaReader {
  public:
    explicit SchemaReader(const Json& document);

    int root() const { return 0; }
    // Error naming the keyword when it cannot be compiled.
    const Keywords& read(int schema);
    const std::string& where(int schema) const { return places_[static_cast<std::size_t>(schema)]; }
    // "the keyword X at #/... <why>".
    [[noreturn]] void refuse(int schema, std::string_view keyword, std::string_view why) const;

  private:
    int number(const Json& schema, const std::string& where);
    int resolve(int schema, const std::string& reference);
    void index_anchors();
    void check_form(int schema, const Json& s) const;
    void read_types(int schema, const Json& s, Keywords& out);
    void read_numbers(int schema, const Json& s, Shape& out);
    void read_strings(int schema, const Json& s, Shape& out);
    void read_arrays(int schema, const Json& s, Shape& out);
    void read_objects(int schema, const Json& s, Shape& out);
    void read_combinations(int schema, const Json& s, Keywords& out);
    std::uint64_t count(int schema, const Json& s, const char* keyword, std::uint64_t otherwise) const;
    void check_pattern(int schema, const char* keyword, const std::string& pattern) const;
    int child(int schema, const char* keyword, const Json& s);
    std::vector<int> children(int schema, const char* keyword, const Json& list);

    const Json& document_;
    std::unordered_map<const Json*, int> numbers_;
    std::vector<const Json*> schemas_;
    std::vector<std::string> places_;
    std::map<int, Keywords> read_;
    std::string id_;                                   // of the document
    bool inner_ids_ = false;
    std::map<std::string, const Json*> anchors_;
};

}  // namespace forge::grammar
