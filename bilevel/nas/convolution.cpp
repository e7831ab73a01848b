#include "bilevel/nas/convolution.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <tuple>
#include <vector>

#include "bilevel/nas/twice.h"

namespace bilevel::nas {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

void save(AutogradContext* ctx, const ConvolutionForm& form) {
  ctx->saved_data["form"] = std::vector<int64_t>{form.stride, form.padding, form.dilation, form.groups};
}

ConvolutionForm saved_form(AutogradContext* ctx) {
  const std::vector<int64_t> f = ctx->saved_data["form"].toIntVector();
  return {.stride = f[0], .padding = f[1], .dilation = f[2], .groups = f[3]};
}

Tensor plain(const Tensor& image, const Tensor& weights, const ConvolutionForm& f) {
  return at::conv2d(image, weights, {}, f.stride, f.padding, f.dilation, f.groups);
}

// The adjoints of `plain` in its image and in its weights; what is not wanted is undefined.
std::tuple<Tensor, Tensor> adjoints(const Tensor& output, const Tensor& image, const Tensor& weights,
                                    const ConvolutionForm& f, bool of_image, bool of_weights) {
  if (!of_image && !of_weights) return {};
  auto [in_image, in_weights, in_bias] = at::convolution_backward(
      output, image, weights, at::OptionalIntArrayRef(), {f.stride, f.stride}, {f.padding, f.padding},
      {f.dilation, f.dilation}, /*transposed=*/false, /*output_padding=*/{0, 0}, f.groups,
      std::array<bool, 3>{of_image, of_weights, false});
  return {in_image, in_weights};
}

Tensor sum_of_defined(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

class ConvolutionGradient : public Function<ConvolutionGradient> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& output, const Tensor& image,
                               const Tensor& weights, const ConvolutionForm& form, bool of_image,
                               bool of_weights) {
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({output, image, weights});
    save(ctx, form);
    ctx->saved_data["of_image"] = of_image;
    auto [in_image, in_weights] = adjoints(output, image, weights, form, of_image, of_weights);
    variable_list wanted;  // an output must not be undefined
    if (of_image) wanted.push_back(in_image);
    if (of_weights) wanted.push_back(in_weights);
    return wanted;
  }

  // Both results are bilinear: <v, A'(output, weights)> + <u, B'(output, image)> is
  // <output, conv(v, weights) + conv(image, u)>.
  static variable_list backward(AutogradContext* ctx, const variable_list& incoming) {
    forbid_third_derivatives("a convolution");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &output = saved[0], &image = saved[1], &weights = saved[2];
    const ConvolutionForm form = saved_form(ctx);
    const bool of_image = ctx->saved_data["of_image"].toBool();
    const Tensor v = of_image ? incoming[0] : Tensor();
    const Tensor u = of_image ? (incoming.size() > 1 ? incoming[1] : Tensor()) : incoming[0];
    Tensor in_output, in_image, in_weights;
    if (ctx->needs_input_grad(0)) {
      in_output = sum_of_defined(v.defined() ? plain(v, weights, form) : Tensor(),
                                 u.defined() ? plain(image, u, form) : Tensor());
    }
    if (u.defined() && ctx->needs_input_grad(1)) {
      in_image = std::get<0>(adjoints(output, image, u, form, true, false));
    }
    if (v.defined() && ctx->needs_input_grad(2)) {
      in_weights = std::get<1>(adjoints(output, v, weights, form, false, true));
    }
    return {in_output, in_image, in_weights, {}, {}, {}};
  }
};

class ConvolutionFunction : public Function<ConvolutionFunction> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& image, const Tensor& weights,
                        const ConvolutionForm& form) {
    ctx->save_for_backward({image, weights});
    save(ctx, form);
    return plain(image, weights, form);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& incoming) {
    const variable_list saved = ctx->get_saved_variables();
    const bool of_image = ctx->needs_input_grad(0), of_weights = ctx->needs_input_grad(1);
    const variable_list wanted =
        ConvolutionGradient::apply(incoming[0], saved[0], saved[1], saved_form(ctx), of_image, of_weights);
    return {of_image ? wanted[0] : Tensor(), of_weights ? wanted.back() : Tensor(), {}};
  }
};

}  // namespace

Tensor convolution(const Tensor& image, const Tensor& weights, const ConvolutionForm& form) {
  return ConvolutionFunction::apply(image, weights, form);
}

}  // namespace bilevel::nas
