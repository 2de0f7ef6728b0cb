/* matrix.glsl: the types of cooperative matrices: elements, edges, subgroups. Included after
 * common.glsl.
 *
 * bf16: 16 x 16 x 16 for subgroups of 32, constants of the text, so that all is known when the text
 * is compiled. With EB_MATRIX_F16: f16, and edges and subgroup of the pipeline, from the driver's
 * list of shapes (backends/vulkan/matrix.c): M and N are 8 or 16, K is 8, 16 or 32. */
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#ifdef EB_MATRIX_F16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#define LANES SUBGROUP
layout(constant_id = 6) const uint EDGE_M = 16; /* rows of a sum */
layout(constant_id = 7) const uint EDGE_N = 16; /* its columns */
layout(constant_id = 8) const uint EDGE_K = 16; /* products of one of its elements */
#else
#extension GL_EXT_bfloat16 : require
#define ELEMENT bfloat16_t
#define LANES 32u
const uint EDGE_M = EB_BF16_EDGE, EDGE_N = EB_BF16_EDGE, EDGE_K = EB_BF16_EDGE;
#endif

#define MATRIX_A coopmat<ELEMENT, gl_ScopeSubgroup, EDGE_M, EDGE_K, gl_MatrixUseA>
#define MATRIX_B coopmat<ELEMENT, gl_ScopeSubgroup, EDGE_K, EDGE_N, gl_MatrixUseB>
#define MATRIX_SUM coopmat<float, gl_ScopeSubgroup, EDGE_M, EDGE_N, gl_MatrixUseAccumulator>
