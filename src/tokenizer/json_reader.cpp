#include "json_reader.h"

#include <vector>

#include "base/error.h"

namespace forge {
namespace {

constexpr std::size_t kMaxDepth = 64;

class Builder : public nlohmann::json_sax<Json> {
  public:
    Builder(std::string_view source, const JsonStreams& streams) : source_(source), streams_(streams) {}
    Json root;

    bool null() override { return value(Json()); }
    bool boolean(bool v) override { return value(v); }
    bool number_integer(number_integer_t v) override { return value(v); }
    bool number_unsigned(number_unsigned_t v) override { return value(v); }
    bool number_float(number_float_t v, const string_t&) override { return value(v); }
    bool string(string_t& v) override { return value(std::move(v)); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& k) override {
        stack_.back().key = std::move(k);
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
        std::string what = e.what();
        // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
        std::size_t bracket = what.find("] ");
        fail("{} is not valid JSON: {}.", source_,
             bracket == std::string::npos ? what : what.substr(bracket + 2));
    }

  private:
    struct Frame {
        Json value;
        std::string key;   // of the member that is being read
        std::string path;  // of this container
        const std::function<void(const std::string&, const Json&)>* stream;
    };

    bool open(Json container) {
        if (stack_.size() >= kMaxDepth)
            fail("{}: the JSON is nested deeper than {} levels.", source_, kMaxDepth);
        Frame f{std::move(container), "", "", nullptr};
        if (!stack_.empty()) {
            const Frame& parent = stack_.back();
            f.path = parent.path.empty() ? parent.key : parent.path + "/" + parent.key;
        }
        auto stream = streams_.at.find(f.path);
        if (stream != streams_.at.end() && !stack_.empty()) f.stream = &stream->second;
        stack_.push_back(std::move(f));
        return true;
    }
    bool close() {
        Json done = std::move(stack_.back().value);
        stack_.pop_back();
        return value(std::move(done));
    }
    bool value(Json v) {
        if (stack_.empty()) {
            root = std::move(v);
            return true;
        }
        Frame& f = stack_.back();
        if (f.stream) {
            (*f.stream)(f.key, v);
        } else if (f.value.is_array()) {
            f.value.push_back(std::move(v));
        } else {
            f.value[f.key] = std::move(v);
        }
        return true;
    }

    std::string_view source_;
    const JsonStreams& streams_;
    std::vector<Frame> stack_;
};

}  // namespace

Json read_json(std::string_view text, std::string_view source, const JsonStreams& streams) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    Builder builder(source, streams);
    Json::sax_parse(text.begin(), text.end(), &builder);
    return std::move(builder.root);
}

const Json& json_member(const Json& object, const char* key) {
    static const Json none;
    if (!object.is_object()) return none;
    auto member = object.find(key);
    return member == object.end() ? none : *member;
}

std::string json_string(const Json& object, const char* key, std::string_view absent,
                        std::string_view where) {
    const Json& v = json_member(object, key);
    if (v.is_null()) return std::string(absent);
    if (!v.is_string()) fail("{}: \"{}\" must be a string, found {}.", where, key, v.type_name());
    return v.get<std::string>();
}

bool json_bool(const Json& object, const char* key, bool absent, std::string_view where) {
    const Json& v = json_member(object, key);
    if (v.is_null()) return absent;
    if (!v.is_boolean()) fail("{}: \"{}\" must be true or false, found {}.", where, key, v.type_name());
    return v.get<bool>();
}

}  // namespace forge
