#include "serve/ollama/messages.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/format.h"
#include "serve/request/left_out_media.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

/// The calls of a conversation and who answers which. Templates are shown ids that differ, also
/// where the client names several calls alike or none at all.
class Calls {
 public:
  /// The id of one more call; `given` is the client's, perhaps empty.
  std::string add(const std::string& given, std::string name) {
    const int number = static_cast<int>(calls_.size());
    const std::string id = given.empty() || ids_.count(given) > 0 ? fresh_id() : given;
    ids_.emplace(id, number);
    if (!given.empty()) by_given_[given].numbers.push_back(number);
    by_name_[name].numbers.push_back(number);
    order_.numbers.push_back(number);
    calls_.push_back({.id = id, .name = std::move(name)});
    return id;
  }

  /// Earlier calls are over: results without an id are of calls from here on.
  void begin() {
    by_name_.clear();
    order_ = {};
  }

  /// The id of the call that a result answers: that of its `given` id, else the first of its name
  /// that has no result yet, else the first of any name.
  std::string take(const std::string& given, const std::string& name) {
    const auto same = by_given_.find(given);
    if (same != by_given_.end()) {
      // A second result of a call is that call's.
      const int last = same->second.numbers.back();
      return calls_[static_cast<size_t>(take_first(same->second).value_or(last))].id;
    }
    std::optional<int> call;
    if (const auto named = by_name_.find(name); named != by_name_.end()) {
      call = take_first(named->second);
    }
    if (!call) call = take_first(order_);
    if (call) return calls_[static_cast<size_t>(*call)].id;
    return given.empty() ? fresh_id() : given;
  }

 private:
  struct Call {
    std::string id;
    std::string name;
    bool has_result = false;
  };

  std::string fresh_id() {
    std::string id;
    do id = formatted("call_{}", next_++);
    while (ids_.count(id) > 0);
    return id;
  }

  // Numbers of calls in their order; those before `front` have results.
  struct Queue {
    std::vector<int> numbers = {};
    size_t front = 0;
  };

  // The first of these without a result, which has one now.
  std::optional<int> take_first(Queue& queue) {
    for (; queue.front < queue.numbers.size(); ++queue.front) {
      const int number = queue.numbers[queue.front];
      Call& call = calls_[static_cast<size_t>(number)];
      if (!std::exchange(call.has_result, true)) return number;
    }
    return std::nullopt;
  }

  std::vector<Call> calls_;
  std::map<std::string, int> ids_;  // and whose they are
  std::map<std::string, Queue> by_given_;
  // These two hold what a result without an id may be of.
  std::map<std::string, Queue> by_name_;
  Queue order_;
  int next_ = 0;
};

class OllamaMessages {
 public:
  explicit OllamaMessages(Fields& fields) : fields_(fields) {}

  Json read(const Json& given) {
    for (size_t i = 0; i < given.size(); ++i) {
      if (role_of(given[i]) == "user") question_ = i;
    }
    Json messages = Json::array();
    for (size_t i = 0; i < given.size() && !fields_.problem(); ++i) {
      Fields message(given[i], formatted("messages[{}]", i));
      const std::string role = role_of(given[i]);
      if (role == "thinking") {
        thought_ = message.text("content").value_or("");
      } else if (!message.problem()) {
        messages.push_back(read_message(message, role, i));
        thought_.clear();
      }
      if (message.problem()) fields_.fail(*message.problem());
    }
    return messages;
  }

 private:
  // Ollama takes them in any case.
  static std::string role_of(const Json& message) {
    if (!message.is_object()) return {};
    const auto found = message.find("role");
    if (found == message.end() || !found->is_string()) return {};
    return lower_case(found->get<std::string>());
  }

  Json read_message(Fields& message, const std::string& role, size_t number) {
    static constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user",
                                                               "assistant", "tool"};
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      const Json* found = message.find("role");
      message.fail(
          bad_field(message.full_name("role"),
                    formatted("{} is {}, expected \"system\", \"user\", \"assistant\" or \"tool\"",
                              message.full_name("role"), found ? json_excerpt(*found) : "absent")));
      return {};
    }
    // The Vercel AI SDK's provider says so that there is no text beside an image.
    const Json* given = message.find("content");
    const bool is_none = given != nullptr && given->is_array() && given->empty();
    std::string content = is_none ? std::string() : message.text("content").value_or("");
    const Json* images = message.array("images");
    const size_t count = images == nullptr ? 0 : images->size();
    if (count > 0 && number == question_) {
      message.fail(media_in_question(message.full_name("images"), "image"));
    }
    add_left_out_images(content, count);
    Json read = {{"role", role}, {"content", std::move(content)}};
    if (role == "assistant" && last_role_ != "assistant") calls_.begin();
    last_role_ = role;
    if (role == "assistant") add_answer(message, read);
    if (role == "tool") add_result(message, read);
    return read;
  }

  void add_answer(Fields& message, Json& read) {
    const std::string thinking = message.text("thinking").value_or(thought_);
    if (!thinking.empty()) read["reasoning_content"] = thinking;
    Json calls = Json::array();
    const Json* given = message.array("tool_calls");
    for (size_t i = 0; given != nullptr && i < given->size() && !message.problem(); ++i) {
      Fields call((*given)[i], formatted("{}[{}]", message.full_name("tool_calls"), i));
      calls.push_back(read_call(call));
      if (call.problem()) message.fail(*call.problem());
    }
    if (!calls.empty()) read["tool_calls"] = std::move(calls);
  }

  Json read_call(Fields& call) {
    const std::string id = call.text("id").value_or("");
    const Json* object = call.object("function");
    if (object == nullptr) {
      const std::string name = call.full_name("function");
      call.fail(bad_field(name, name + " is absent"));
      return {};
    }
    Fields function(*object, call.full_name("function"));
    const std::string name = function.text("name").value_or("");
    const Json* arguments = function.object("arguments");
    if (function.problem()) call.fail(*function.problem());
    return {{"id", calls_.add(id, name)},
            {"type", "function"},
            {"function",
             {{"name", name}, {"arguments", arguments == nullptr ? "{}" : dump_json(*arguments)}}}};
  }

  void add_result(Fields& message, Json& read) {
    // Clients from before 0.9 call it `name`.
    std::string name = message.text("tool_name").value_or("");
    if (name.empty()) name = message.text("name").value_or("");
    read["tool_call_id"] = calls_.take(message.text("tool_call_id").value_or(""), name);
    if (!name.empty()) read["name"] = name;
  }

  Fields& fields_;
  size_t question_ = ~size_t{0};  // the last message of the user
  std::string last_role_;
  /// Continue sends what a model thought as a message of its own, before the answer.
  std::string thought_;
  Calls calls_;
};

}  // namespace

void add_left_out_images(std::string& content, size_t images) {
  for (size_t i = 0; i < images; ++i) {
    if (!content.empty()) content += "\n";
    content += left_out_line("image");
  }
}

Json read_ollama_messages(Fields& fields) {
  const Json* messages = fields.array("messages");
  return messages == nullptr ? Json::array() : OllamaMessages(fields).read(*messages);
}

}  // namespace moeflux::serve
