/* kernel_args.h: the argument structs of all kernels. */
#ifndef EB_BACKENDS_KERNEL_ARGS_H
#define EB_BACKENDS_KERNEL_ARGS_H

#include "shaders/common/args_act.h"
#include "shaders/common/args_copy.h"
#include "shaders/common/args_kda.h"
#include "shaders/common/args_linear.h"
#include "shaders/common/args_mla.h"
#include "shaders/common/args_moe.h"
#include "shaders/common/args_norm.h"
#include "shaders/common/args_res.h"
#include "shaders/common/args_route.h"
#include "shaders/common/args_sample.h"
#include "shaders/common/args_token.h"

#endif
