"""Names from real profiles, and the category that a person gives them."""

import gzip
import json
import re
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from benchmarker.traces.attribution import categories as module
from benchmarker.traces.attribution.categories import categories, categorize

DATA = tomllib.loads(Path(module.__file__).with_name("categories.toml").read_text())
TRACES = Path(__file__).parents[5] / "shared" / "traces"
FILES = sorted(TRACES.glob("*.json.gz"))

NATIVE = "void at::native::"
ELEMENTWISE = f"{NATIVE}vectorized_elementwise_kernel<4, at::native::"
EIGEN = "Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<Eigen::Tensor<float, 1, 1, int>>, Eigen::"
TENSORRT = "void tensorrt_llm::kernels::"

NAMES = """
gemm           ampere_sgemm_128x64_tn
gemm           volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn
gemm           sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8
gemm           sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kern
gemm           nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT
gemm           nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_splitK_TNT
gemm           void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4>
gemm           void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024>
gemm           std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16>
gemm           void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16>
gemm           void cublasLt::epilogue::impl::globalKernel<8, 32, float, float, float>
gemm           void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensor<float>>>
gemm           void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>
gemm           cutlass3x_sm90_tensorop_gmma_h64x128x16
gemm           _ZN7cutlass13device_kernelIN10flashinfer4gemm23GemmUniversal
gemm           void cutlass::device_kernel<vllm::cutlass_3x_scaled_mm>
gemm           bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32
gemm           Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x192x64_MI16x16x1
gemm           Cijk_SB_Alik_Bljk_PostGSU8
gemm           void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3>
gemm           _ZN2ck16tensor_operation6device12_GLOBAL__N_124kernel_gemm_dl_multiple_dINS_GridwiseGemm
gemm           _ZN7ck_tile6kentryILi1ENS_17GemmKernelI
gemm           void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 1>
gemm           rocblas_hemv_kernel
gemm           fused_moe_kernel
gemm           _ZN5aiter47fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256E
gemm           void ck_moe_stage1_kernel
gemm           void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, false, 4, 8, false>
gemm           void machete::device_impl
gemm           void mul_mat_vec_q<(ggml_type)12, 1, false>
gemm           void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u>
gemm           triton_tem_fused_addmm_relu_2
gemm           triton_tem_fused_mm_0
gemm           triton_mm
gemm           _matmul_kernel
gemm           gemm_fusion_dot_general_1
gemm           mm_kernel
gemm           void vllm::moe_wna16_kernel<__half>
gemm           ampere_fp16_s1688cublas_fp16_128x128
gemm           syrk_kernel
gemm           streamk_matmul
gemm           splitK_TNN_epilogue
gemm           void hipblaslt_ext_kernel
gemm           sm80_tensorop_fp16_s16816
convolution    void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float>
convolution    void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>
convolution    sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4
convolution    sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32
convolution    sm86_xmma_wgrad_implicit_gemm_indexed_f16f16
convolution    volta_scudnn_128x64_relu_xregs_large_nn_v1
convolution    void cutlass_cudnn::Kernel<cutlass_tensorop_f16_s16816dgrad_optimized_f16_128x256_32x3_unity_stride>
convolution    void winograd_nonfused::winogradForwardFilter4x4<float, float>
convolution    cudnn_engine_conv2d
convolution    void at::native::im2col_kernel<float>(long, float const*, long, long)
convolution    void at::native::col2im_kernel<float, float>
convolution    Im2d2Col_v2
convolution    Im3d2Col.kd
convolution    void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<1, c10::Half, int>
convolution    DepthwiseConv2dGPUKernelNCHW
convolution    igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2
convolution    igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32
convolution    naive_conv_ab_nonpacked_fwd_nchw_float_double_float
convolution    miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_dilation2_group
convolution    miopenGcnAsmConv1x1U
convolution    gridwise_convolution_implicit_gemm_v4r1
convolution    _ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm
convolution    _ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3
convolution    triton_convolution2d_4
convolution    ncsp_asm_conv
convolution    MIOpenConvUni
convolution    void cask__5x_cudnn::computeOffsetsKernel
convolution    causal_conv1d_fwd_kernel
convolution    hip_fusedConv3x3
convolution    triton_tem_fused_conv_3
attention      void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bflo
attention      void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel
attention      void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloop
attention      flash::FlashAttentionForwardSm100
attention      cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0
attention      fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)
attention      fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext
attention      _ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelI
attention      attn_fwd
attention      bwd_kernel_fused_attn_bwd
attention      void vllm::paged_attention_v2_kernel<__nv_bfloat16, unsigned char, 128, 16>
attention      kernel_unified_attention_2d
attention      void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits>
attention      void flashinfer::BatchDecodeWithPagedKVCacheKernel
attention      void flashinfer::SinglePrefillWithKVCacheKernel
attention      _fwd_grouped_kernel_stage1
attention      void vllm::merge_attn_states_kernel<__nv_bfloat16>
attention      _ZN5aiter26pa_bf16_noquant_a16w16_gqa8E
attention      _ZN5aiter30mla_a8w8_qh16_qseqlen1_gqaratio16E
attention      triton_tem_fused_flex_attention_0
attention      flash_mla_fwd_splitkv
attention      void flashMLA::run
attention      void sglang::flash_c4_prefill<512l>(Params)
attention      aiter::mha_fwd_v3
attention      flashattn_v4_cute
attention      qk_int8_sv_f8_accum_f32_attn_inst_buf
attention      _paged_attn_decode_v1_w_dot_kernel
communication  ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
communication  ncclKernel_SendRecv
communication  rcclGenericKernel
communication  void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>
communication  void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>
communication  void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport
communication  void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>
communication  nvshmemi_transfer_rma
communication  userbuffers_fp16_sum_inplace_gpu_rr_rs_oop
communication  Memcpy PtoP (Device -> Device)
communication  one_shot_all_gather_kernel
communication  two_shot_reduce_scatter_kernel
communication  moe_all_to_all_kernel
memory         Memcpy DtoD (Device -> Device)
memory         Memset (Device)
memory         [CUDA memcpy Host-to-Device]
memory         __amd_rocclr_copyBuffer.kd
memory         __amd_rocclr_fillBufferAligned
memory         CopyDeviceToHost
memory         batched_transpose_32x16_half
memory         transpose_CNHW2NCHW_V2_2D_WG_off64
memory         void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>
memory         SubTensorOpWithCastTensor1d
memory         {NATIVE}(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>
memory         {NATIVE}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda
memory         {ELEMENTWISE}bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>
memory         {ELEMENTWISE}FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >
memory         {NATIVE}(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>
memory         {NATIVE}index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>
memory         {NATIVE}indexing_backward_kernel<float, 4>
memory         {NATIVE}indexFuncLargeIndex<float, long, unsigned int>
memory         {NATIVE}vectorized_gather_kernel<16, long>(char*, char*, long*)
memory         {NATIVE}_scatter_gather_elementwise_kernel<128, 8>
memory         void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out>
memory         {NATIVE}roll_cuda_kernel<float>
memory         {NATIVE}kernel_pointwise_flip_apply2_flip_cuda
memory         void at::native::(anonymous namespace)::constant_pad_kernel
memory         void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>
memory         void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>
memory         void vllm::copy_blocks_kernel
memory         _compute_slot_mapping_kernel
memory         set_kv_buffer_kernel
memory         store_kvcache_kernel
memory         void permutationKernelPLC3<cutensor>
memory         concat_mla_k_kernel
memory         onednn_reorder_f32_bf16
memory         genericTranspose_kernel
memory         tensorTransformGeneric
memory         fill_kernel_u8
memory         slice_kernel_4d
memory         bulkCopy_v2
memory         triton_poi_fused__to_copy_transpose_3
normalisation  {NATIVE}(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>
normalisation  {NATIVE}batch_norm_backward_kernel<c10::BFloat16, c10::BFloat16, float, int>
normalisation  {NATIVE}RowwiseMomentsCUDAKernel<float>
normalisation  {NATIVE}(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float>
normalisation  {NATIVE}(anonymous namespace)::ComputeFusedParamsCUDAKernel<float>
normalisation  void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>
normalisation  MIOpenBatchNormFwdTrainSpatial
normalisation  miopen_bn_fwd_infer
normalisation  void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>
normalisation  void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>
normalisation  void transformer_engine::normalization::ln_fwd_tuned_kernel
normalisation  void vllm::rms_norm_dynamic_per_token_quant_kernel
normalisation  void groupNormNHWCSumKernel
normalisation  triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1
normalisation  triton_per_fused_native_layer_norm_0
normalisation  triton_poi_fused__native_batch_norm_legit_no_training_relu_5
softmax        {NATIVE}(anonymous namespace)::cunn_SoftMaxForward<4, c10::BFloat16, float, c10::BFloat16>
softmax        void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>
softmax        scaled_upper_triang_masked_softmax_warp_forward
softmax        triton_softmax_3_0
softmax        soft_max_f32
softmax        triton_red_fused__log_softmax_2
softmax        _cross_entropy_forward_kernel
embedding      triton_poi_fused_embedding_0
embedding      void split_embedding_codegen_forward_unweighted_kernel
embedding      {NATIVE}(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float, long>
embedding      emb_bag_backward
embedding      {NATIVE}(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>
routing        void moe::dev::routing::routingIndicesHistogramKernel<moe::dev::routing::routingRenormalize::KernelParams
routing        void moe::dev::finalize::finalizeKernelVecLoad<cutlass::bfloat16_t, cutlass::bfloat16_t, 4, true>
routing        void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 32, int>
routing        void vllm::moe::moe_align_block_size_kernel<int>
routing        {TENSORRT}cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16>
routing        {TENSORRT}cutlass_kernels::expandInputRowsKernel<__nv_bfloat16>
routing        {TENSORRT}cutlass_kernels::computeExpertFirstTokenOffsets_expert_first_token
routing        count_and_sort_expert_tokens_kernel
routing        void grouped_topk_fused_small_expert_count_kernel
routing        fused_topk_softmax
routing        _permute_kernel
routing        _ZN7ck_tile6kentryILi256ELi1ENS_10MoeSortingKernel
recurrent      void LSTM_elementWise_fp<float, float, float>
recurrent      void RNN_blockPersist_fp_GRU<float>
recurrent      gru_cell_forward
recurrent      void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits>
recurrent      _chunk_scan_fwd_kernel
recurrent      _mamba_chunk
recurrent      rwkv_wkv6
recurrent      fused_recurrent_gated_delta_rule_fwd
optimizer      {NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>
optimizer      void adam_update_kernel<float>
optimizer      void lamb_stage_1
optimizer      fused_sgd_step
optimizer      void kOptimizerStatic8bit2StateBlockwise
optimizer      adagrad_dense
optimizer      lion_update
optimizer      adafactor_step
quantisation   {TENSORRT}quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, __nv_bfloat16, 32, true>
quantisation   void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>
quantisation   per_token_group_quant_8bit_kernel
quantisation   void transformer_engine::cast_transpose_fused_kernel
quantisation   static_scaled_int8_quant
quantisation   void transformer_engine::amax_kernel
quantisation   cvt_fp16_to_fp4
reduction      {NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>
reduction      void cub::CUB_200200_700_NS::DeviceReduceSingleTileKernel
reduction      void cub::CUB_200200_700_NS::DeviceScanKernel
reduction      {NATIVE}tensor_kernel_scan_innermost_dim
reduction      {NATIVE}(anonymous namespace)::max_pool_forward_nchw<c10::BFloat16>
reduction      void cudnn::pooling_fw_4d_kernel<float>
reduction      {NATIVE}(anonymous namespace)::nll_loss_forward_no_reduce
reduction      {NATIVE}kernelHistogram1D_histogram
reduction      block_reduction_2d
reduction      argmax_i64
reduction      nll_loss_forward
reduction      cumsum_f32
reduction      l2norm_fwd
reduction      sum_kernel_f32
reduction      input_reduce_fusion
reduction      triton_per_fused_sum_1
sort           void cub::CUB_200200_700_NS::DeviceRadixSortOnesweepKernel
sort           {NATIVE}bitonicSortKVInPlace
sort           {NATIVE}sbtopk::gatherTopK<float, unsigned int, 2, false>
sort           void cub::DeviceSelectSweepKernel
sort           void cub::DeviceMergeSortBlockSortKernel
sort           void segmented_sort_pairs
sort           void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__unique::UniqueAgent>
sort           void DevicePartitionSweep
sort           {NATIVE}radixFindKthValues
sort           void flashinfer::sampling::TopPSamplingFromProbKernel
random         {NATIVE}(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>
random         void gen_sequenced<curandStateXORWOW>
random         void threefry2x32_kernel
random         rng_bit_generator
random         random_from_to
random         exponential_kernel_cuda
random         philox_uniform
linalg         void trsm_left_kernel
linalg         trsv_lower
linalg         potrf_batched
linalg         getrf_panel
linalg         geqrf_small
linalg         gesvdj_sweep
linalg         syevj_batched
linalg         cusolver_info
linalg         magma_zlarft
linalg         void regular_fft<256u, EPT<16u>>
elementwise    {ELEMENTWISE}BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulF
elementwise    {NATIVE}unrolled_elementwise_kernel<at::native::CUDAFunctorOnSelf_add<int>, 4, at::native::memory::LoadWi
elementwise    {NATIVE}(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>
elementwise    {ELEMENTWISE}(anonymous namespace)::masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)
elementwise    {NATIVE}triu_tril_kernel<float, int, true>
elementwise    {NATIVE}upsample_nearest2d_nhwc_out_frame<float>
elementwise    void vllm::rotary_embedding_kernel<c10::BFloat16, true>
elementwise    void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel<c10::BFloat16>>
elementwise    silu_and_mul_kernel
elementwise    triton_for_fused_0
elementwise    fused_rope_forward
elementwise    {TENSORRT}cutlass_kernels::doActivationKernel
elementwise    _swiglu_fwd_kernel
elementwise    triton_poi_fused__unsafe_view_mul_silu_2
elementwise    MIOpenActiveFwd2DLite_relu
elementwise    MIOpenNeuronFwd
elementwise    fused_residual_connection
elementwise    Op4dTensorGeneric_OpTensor
elementwise    generatedNativePointwise
elementwise    cpp_fused_add_mul_0
elementwise    loop_multiply_fusion.3
elementwise    apply_penalties
elementwise    add_bias_f16
elementwise    void cuComputeGradInput_activationBwd
elementwise    scale_kernel
elementwise    jit_eltwise_fwd
uncategorised  my_own_kernel
uncategorised  void foo::bar(int)
embedding      void split_embedding_codegen_forward_unweighted_kernel<float, float, float, int, 64ul, 8ul>
embedding      void split_embedding_codegen_forward_weighted_v2_kernel<c10::Half, float>
embedding      void split_embedding_backward_codegen_rowwise_adagrad_kernel_warp_per_row_1<fbgemm_gpu::x>
embedding      void fbgemm_gpu::split_embedding_backward_codegen_find_long_segments(int const*)
embedding      void fbgemm_gpu::bounds_check_indices_kernel_v1<long>
embedding      void fbgemm_gpu::lxu_cache_lookup_kernel<long>
embedding      void fbgemm_gpu::lru_cache_insert_kernel
embedding      void fbgemm_gpu::linearize_cache_indices_kernel<long>
embedding      void fbgemm_gpu::linearize_index_wo_infos_kernel<long>
embedding      void int_nbit_split_embedding_codegen_forward_unweighted_kernel_small_L<>
embedding      _ZN10fbgemm_gpu33dense_embedding_codegen_grad_indice_weights_kernelE
memory         void fbgemm_gpu::permute_2D_lengths_kernel<int>
memory         void fbgemm_gpu::permute_2D_data_kernel_vec<false, int, long, float>
memory         void fbgemm_gpu::permute_pooled_embs_kernel<float>
memory         void fbgemm_gpu::index_select_2d_kernel<long, float, 4>
memory         void fbgemm_gpu::group_index_select_or_add_2d_kernel<>
memory         void fbgemm_gpu::_block_bucketize_sparse_features_cuda_kernel2<>
memory         void fbgemm_gpu::keyed_jagged_index_select_dim1_kernel
quantisation   void fbgemm_gpu::_float_to_fused8bitrowwise_cuda_kernel<float>
quantisation   void fbgemm_gpu::_fused8bitrowwise_to_float_cuda_kernel<>
quantisation   void fbgemm_gpu::_float_to_bfloat16_cuda_kernel(float const*)
quantisation   void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel
optimizer      void fbgemm_gpu::split_rowwise_adagrad_table_update_kernel
optimizer      void fbgemm_gpu::dense_adagrad_kernel<float>
gemm           void fbgemm_gpu::cutlass_gemm_f8f8bf16<>
gemm           void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<fbgemm_gpu::Epilogue>>
reduction      void fbgemm_gpu::_offsets_range_cuda_kernel<int>
reduction      void at::native::(anonymous namespace)::adaptive_average_pool<c10::BFloat16>
reduction      void at::native::(anonymous namespace)::adaptive_average_gradinput<float>
reduction      void at::native::(anonymous namespace)::atomic_adaptive_average_gradinput<float>
reduction      void at::native::(anonymous namespace)::avg_pool2d_out_cuda_frame<float, float, int>
reduction      void at::native::(anonymous namespace)::adaptivemaxpool<float>
reduction      void at::native::(anonymous namespace)::fractional_max_pool2d_out_cuda_frame<float>
reduction      mloPoolingG
reduction      mloPoolingForwardNaive.kd
reduction      triton_poi_fused_avg_pool2d_3
reduction      void cudnn::ops::pooling_bw_5d_kernel_max
attention      _ZN5aiter sage_fwd_kernel
attention      _sage_fwd
attention      _attn_fwd_inner sageattn
routing        void ck_tile::kentry<1, ck_tile::MoeSortingMultiPhaseKernel_P0_v1<>>
routing        _ZN5aiter30grouped_topk_opt_sort_kernelI
routing        void aiter::biased_grouped_topk
routing        void moe_fused_gate_kernel<float>
routing        _count_expert_num_tokens
routing        _topk_forward
routing        _unpermute_kernel
routing        _sort_chunks_by_idxs_kernel
routing        _row_id_map_pass_1_kernel
routing        void tensorrt_llm::kernels::blockExpertPrefixSumKernel<32>
routing        void tensorrt_llm::kernels::fusedBuildExpertMapsSortFirstTokenKernel<256>
routing        void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel
routing        _fwd_kernel_ep_scatter_1
routing        _fwd_kernel_ep_gather
routing        void vllm::moe::count_and_sort_expert_tokens_kernel<int>
routing        _bitmatrix_metadata_compute_stage1
routing        _expt_data_memset
gemm           _fused_moe_kernel_gptq_awq
gemm           _ZN7ck_tile6kentryILi1ENS_15MoeFlatmmKernelE
gemm           _ZN5aiter38fmoe_stage1_bf16_pertokenFp8_g1u1_64x128_pf2E
reduction      {NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float>>
reduction      void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>>
elementwise    void multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<float>, Sqrt<float>>
elementwise    void multi_tensor_apply_kernel<TensorListMetadata<2>, ScaleFunctor<float, float>>
optimizer      void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float>>
optimizer      void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctorMaster<float>>
optimizer      void multi_tensor_apply_kernel<TensorListMetadata<4>, LAMBStage1Functor<float>>
communication  void internode::dispatch<false, 4, true, 8192, 8>
communication  void intranode::combine<__nv_bfloat16, 8, 768>
communication  void intranode::cached_notify_combine<8>
communication  _ZN9internode15notify_dispatchILb0ELi2EEEvPKiPii
communication  EpDispatchInterNodeV1Kernel<hip_bfloat16>
communication  EpCombineIntraNodeKernel<hip_bfloat16, false>
gemm           batched_matrix_multiplication_kernel_64x64
gemm           matrixMulCUDA
control        event_wait
memory         dma_request
elementwise    customized_fba_mul_const-dtype_Float
elementwise    EigenMetaKernel
elementwise    void Eigen::internal::EigenMetaKernel<{EIGEN}TensorCwiseBinaryOp<Eigen::internal::scalar_product_op>
elementwise    void Eigen::internal::EigenMetaKernel<{EIGEN}TensorSelectOp<TensorBroadcastingOp>
reduction      void Eigen::internal::EigenMetaKernel<{EIGEN}TensorReductionOp<Eigen::internal::SumReducer>
memory         void Eigen::internal::EigenMetaKernel<{EIGEN}TensorConversionOp<Eigen::half, float>
memory         _ZN5Eigen8internal15EigenMetaKernelINS_15TensorEvaluatorIKNS_14TensorAssignOpINS_17TensorShufflingOpI
memory         void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 1024, 32, 32>
memory         void tensorflow::functor::PadInputCustomKernelNCHW<float, 4>
memory         void tensorflow::SplitOpKernel<float>
elementwise    void tensorflow::BiasNCHWKernel<float>
memory         void multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<float>>
"""

OPS = """
gemm           onnx::Gemm
gemm           onnx::FusedMatMul
convolution    onnx::FusedConv
normalisation  onnx::SkipLayerNormalization
softmax        onnx::Softmax
reduction      onnx::ReduceMean
reduction      onnx::GlobalAveragePool
memory         onnx::Reshape
memory         onnx::ReorderOutput
elementwise    onnx::Mul
elementwise    onnx::BiasGelu
quantisation   onnx::DynamicQuantizeLinear
gemm           onnx::DynamicQuantizeMatMul
gemm           openvino::FullyConnected
gemm           openvino::MatMul
convolution    openvino::Convolution
convolution    openvino::GroupConvolution
attention      openvino::ScaledDotProductAttention
normalisation  openvino::MVN
softmax        openvino::Softmax
reduction      openvino::Reduce
reduction      openvino::MaxPool
memory         openvino::VariadicSplit
memory         openvino::Reorder
memory         openvino::Concat
elementwise    openvino::Subgraph
gemm           aten::mm
gemm           aten::addmm
gemm           aten::_scaled_mm
gemm           aten::linear
gemm           aten::matmul
gemm           aten::_addmm_activation
gemm           aten::_weight_int4pack_mm
gemm           MmBackward0
gemm           autograd::engine::evaluate_function: AddmmBackward0
gemm           LinearBackward0
gemm           mkldnn::_linear_pointwise
gemm           mkl::_mkl_linear
gemm           _C::gptq_gemm
gemm           _C::cutlass_scaled_mm
gemm           dot.5
gemm           cublas-gemm.1.0
gemm           triton_gemm_fusion.3
convolution    aten::convolution_backward
convolution    aten::cudnn_convolution
convolution    aten::conv2d
convolution    ConvolutionBackward0
convolution    mkldnn::_convolution_pointwise
convolution    cudnn-conv.1
convolution    convolution.7
convolution    vllm::causal_conv1d_update
attention      aten::_scaled_dot_product_efficient_attention
attention      aten::_flash_attention_forward
attention      ScaledDotProductFlashAttentionBackward0
attention      vllm::unified_attention_with_output
attention      flash_attn::_flash_attn_forward
attention      flash_attn::_flash_attention
attention      aiter::mha_fwd
attention      aiter::fmha_v3_fwd
attention      FusedAttnFunc
attention      _C::flash_mla_fwd
attention      sgl_kernel::batch_decode
communication  c10d::allreduce_
communication  _c10d_functional::all_gather_into_tensor
communication  nccl:all_reduce
communication  record_param_comms
communication  symm_mem::multimem_all_reduce_
communication  vllm::all_reduce
communication  vllm::all_gather
communication  vllm::reduce_scatter
communication  vllm::broadcast
communication  all-reduce-start.1
communication  all-to-all.2
communication  collective-permute.4
communication  send-done.1
normalisation  aten::native_layer_norm
normalisation  aten::native_batch_norm_backward
normalisation  NativeBatchNormBackward0
normalisation  _C::fused_add_rms_norm
normalisation  aten::_weight_norm
softmax        aten::_softmax
softmax        aten::_log_softmax_backward_data
softmax        LogSoftmaxBackward0
softmax        aten::cross_entropy_loss
embedding      aten::embedding_dense_backward
embedding      aten::_embedding_bag
embedding      EmbeddingBackward0
embedding      fbgemm::permute_embedding_weights
embedding      split_embedding_codegen_lookup
routing        _moe_C::moe_sum
routing        vllm::moe_align_block_size
routing        sgl_kernel::topk_softmax
routing        vllm::grouped_topk
routing        _C::moe_unpermute
routing        aiter::biased_grouped_select
recurrent      aten::_cudnn_rnn
recurrent      aten::_thnn_fused_lstm_cell
recurrent      CudnnRnnBackward0
recurrent      vllm::selective_scan_fwd
recurrent      vllm::mamba_mixer2
recurrent      vllm::gated_delta_net
optimizer      aten::_fused_adamw_
optimizer      aten::_amp_foreach_non_finite_check_and_unscale_
optimizer      Optimizer.step#AdamW.step
quantisation   _C::static_scaled_fp8_quant
quantisation   aten::fake_quantize_per_tensor_affine
quantisation   quantized::batch_relu
reduction      aten::sum
reduction      aten::max_pool2d_with_indices
reduction      aten::linalg_vector_norm
reduction      aten::cumsum
reduction      aten::nll_loss_forward
reduction      MeanBackward1
reduction      input_reduce_fusion.2
sort           aten::topk
sort           SortBackward0
sort           sort.3
random         aten::normal_
random         aten::bernoulli_
random         aten::randn
random         rng-bit-generator.2
linalg         aten::linalg_solve_ex
linalg         aten::_fft_c2c
linalg         aten::cholesky
linalg         fft.2
linalg         triangular-solve.1
memory         aten::copy_
memory         aten::cat
memory         aten::detach
memory         aten::_to_copy
memory         aten::index_put_
memory         aten::flatten_dense_tensors
memory         aten::_foreach_copy_
memory         fsdp::chunk_cat
memory         fsdp::all_gather_copy_in
memory         aten::_chunk_cat
control        PythonSubclass
control        _ToTorchTensor
control        _FromTorchTensorBackward
control        NestedRedistribute
control        RegisterPostBackwardFunctionBackward
memory         _C_cache_ops::swap_blocks
memory         vllm::reshape_and_cache
memory         CopyBackwards
memory         autograd::engine::evaluate_function: TBackward0
memory         copy.4
memory         copy-start.1
memory         detach
memory         wrapped_transpose
memory         loop_transpose_fusion
memory         input_scatter_fusion
memory         loop_dynamic_update_slice_fusion.1
elementwise    aten::mul
elementwise    aten::gelu_backward
elementwise    aten::native_dropout
elementwise    aten::mse_loss
elementwise    aten::bitwise_and
elementwise    ReluBackward0
elementwise    torch::autograd::AccumulateGrad
elementwise    _C::rotary_embedding
elementwise    _C::silu_and_mul
elementwise    sgl_kernel::apply_rope_with_cache
elementwise    loop_add_fusion
elementwise    multiply_add_fusion.3
elementwise    add.7
elementwise    broadcast_multiply_fusion
control        while.3
uncategorised  vllm::moe_forward
uncategorised  Torch-Compiled Region: 0/0
memory         fbgemm::permute_2D_sparse_data
memory         fbgemm::jagged_to_padded_dense
quantisation   fbgemm::FloatToFP8RowwiseQuantized
quantisation   fbgemm::FloatToFused8BitRowwiseQuantized
reduction      fbgemm::asynchronous_complete_cumsum
reduction      AdaptiveAvgPool2DBackward0
attention      aiter::sage_fwd
attention      sageattention::qk_int8_sv_f16
routing        sgl_kernel::moe_fused_gate
routing        aiter::topk_softmax
reduction      aten::_foreach_norm
elementwise    aten::_foreach_add_
elementwise    aten::_foreach_mul_
embedding      SplitLookupFunction_rowwise_adagrad_OpBackward0
embedding      fbgemm::bounds_check_indices
"""

TARGETS = """
gemm           __cublas$gemm
gemm           __cublas$lt$matmul$f8
gemm           __onednn$matmul
gemm           te_gemm_ffi
gemm           __triton_dot
convolution    __cudnn$convForward
convolution    __onednn$convolution
attention      __cudnn$fmhaSoftmax
attention      te_fused_attn_forward_ffi
attention      flash_mha_fwd
attention      pallas_attention
linalg         lapack_spotrf_ffi
linalg         cusolver_getrf_ffi
linalg         hipsolver_syevd
linalg         cublas_trsm
linalg         ducc_fft
linalg         gpu_cholesky
communication  nccl_all_reduce
communication  nvshmem_put
communication  custom_allreduce
communication  custom_all_gather
normalisation  __cudnn$norm
normalisation  __onednn$layernorm
normalisation  te_norm_forward_ffi
normalisation  rms_norm
softmax        __onednn$softmax
sort           TopK
sort           __cub$DeviceRadixSort
random         cu_threefry2x32_ffi
random         prng_key
quantisation   te_quantize_ffi
elementwise    te_act_lu_ffi
memory         MoveToHost
memory         AllocateBuffer
memory         annotate_device_placement
memory         Sharding
memory         SPMDFullToShardShape
control        xla_ffi_python_cpu_callback
uncategorised  my_call
"""


def rows(text: str) -> list[tuple[str, str]]:
    text = (
        text.replace("{EIGEN}", EIGEN)
        .replace("{NATIVE}", NATIVE)
        .replace("{ELEMENTWISE}", ELEMENTWISE)
        .replace("{TENSORRT}", TENSORRT)
    )
    return [
        (name.strip(), category) for category, name in (line.split(maxsplit=1) for line in text.strip().splitlines())
    ]


@pytest.mark.parametrize(("name", "category"), rows(NAMES))
def test_a_kernels_name_tells_its_category(name, category):
    found, rule = categorize(name=name)
    assert found == category, rule
    assert bool(rule) == (category != "uncategorised")


@pytest.mark.parametrize(("op", "category"), rows(OPS))
def test_an_op_tells_the_category_of_a_kernel_that_does_not(op, category):
    found, rule = categorize(name="a_kernel", op=op)
    assert found == category, rule
    assert rule.startswith("op:") == (category != "uncategorised")
    assert categorize(name=op)[0] == category


@pytest.mark.parametrize(("target", "category"), rows(TARGETS))
def test_a_custom_calls_target_tells_its_category(target, category):
    found, rule = categorize(name="a_kernel", op="custom-call.3", opcodes=["custom-call"], target=target)
    assert found == category, rule
    assert rule.startswith("hlo:") == (category != "uncategorised")


@pytest.mark.parametrize(
    ("opcodes", "expected"),
    [
        (["dot"], ("gemm", "hlo:dot")),
        (["parameter", "dot", "bitcast", "fusion"], ("gemm", "hlo:dot")),
        (["dot", "convert", "broadcast"], ("gemm", "hlo:dot")),
        (["add", "dot", "multiply"], ("gemm", "hlo:dot (mixed)")),
        (["exponential", "subtract", "reduce", "divide"], ("reduction", "hlo:reduce (mixed)")),
        (["reduce", "convolution"], ("convolution", "hlo:convolution (mixed)")),
        (["add", "multiply"], ("elementwise", "hlo:add")),
        (["convert", "broadcast", "add"], ("elementwise", "hlo:add")),
        (["transpose", "add"], ("elementwise", "hlo:add (mixed)")),
        (["gather", "add"], ("memory", "hlo:gather (mixed)")),
        (["transpose", "convert"], ("memory", "hlo:transpose")),
        (["convert"], ("memory", "hlo:convert")),
        (["some-opcode-of-tomorrow"], ("elementwise", "hlo:some-opcode-of-tomorrow")),
        (["all-reduce-start"], ("communication", "hlo:all-reduce-start")),
        (["async-start", "reduce-scatter", "add"], ("communication", "hlo:reduce-scatter (mixed)")),
        (["reduce-window"], ("reduction", "hlo:reduce-window")),
        (["sort", "compare"], ("sort", "hlo:sort (mixed)")),
        (["rng-bit-generator"], ("random", "hlo:rng-bit-generator")),
        (["while"], ("control", "hlo:while")),
        (["call", "dot"], ("gemm", "hlo:dot")),
        (["parameter", "tuple"], ("uncategorised", "")),
    ],
)
def test_hlo_opcodes_tell_the_heaviest_member(opcodes, expected):
    assert categorize(name="fusion.1", opcodes=opcodes) == expected
    assert categorize(name="fusion.1", opcodes=opcodes[::-1])[0] == expected[0]


FP8_GEMM = "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u>"
GEMM = "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"name": "loop_transpose_fusion", "opcodes": ["add"], "op": "aten::mm"}, ("elementwise", "hlo:add")),
        ({"name": GEMM, "op": "cudnn-conv.1"}, ("convolution", "op:cudnn-conv")),
        ({"name": GEMM, "op": "custom-call.1", "target": "__cudnn$convForward"}, ("convolution", "hlo:$conv")),
        ({"name": "Memset (Device)", "target": "__cublas$gemm"}, ("memory", "name:memset")),
        ({"name": GEMM, "op": "aten::miopen_convolution"}, ("convolution", "op:aten::miopen_convolution")),
        ({"name": GEMM, "op": "aten::mm"}, ("gemm", "op:aten::mm")),
        ({"name": GEMM, "op": "vllm::moe_forward"}, ("gemm", "name:cijk_")),
        ({"name": "batched_transpose_32x16_half", "op": "aten::convolution"}, ("memory", "name:batched_transpose_3")),
        ({"name": "void cublasLt::splitKreduce_kernel<32, 16>", "op": "aten::addmm"}, ("gemm", "op:aten::addmm")),
        ({"name": "void at::native::reduce_kernel<512>", "op": "aten::linear"}, ("gemm", "op:aten::linear")),
        ({"name": "softmax_warp_forward", "op": "aten::scaled_dot_product_attention"}, ("softmax", "name:softmax")),
        ({"name": GEMM, "op": "aten::scaled_dot_product_attention"}, ("gemm", "name:cijk_")),
        ({"name": FP8_GEMM, "op": "vllm::unified_attention_with_output"}, ("gemm", "name:gemm")),
        ({"name": FP8_GEMM, "op": "vllm::moe_forward"}, ("gemm", "name:gemm")),
        ({"name": "my_own_kernel", "op": "flash_attn::_flash_attn_forward"}, ("attention", "op:flash_attn")),
        ({"name": f"fmha_{GEMM}", "op": "aten::mm"}, ("attention", "name:fmha")),
        ({"name": "Memcpy DtoD (Device -> Device)", "op": "aten::copy_"}, ("memory", "name:memcpy")),
        ({"name": "elementwise_kernel", "op": "aten::fill_"}, ("memory", "op:aten::fill_")),
        (
            {"name": "multi_tensor", "op": "aten::_foreach_add_", "optimizing": True},
            ("optimizer", "op:aten::_foreach_"),
        ),
        ({"name": "multi_tensor_apply_kernel", "op": "aten::_foreach_copy_"}, ("memory", "op:aten::_foreach_copy")),
        ({"name": "aten::mm"}, ("gemm", "op:aten::mm")),
        ({"name": ""}, ("uncategorised", "")),
    ],
)
def test_what_is_more_particular_decides(call, expected):
    assert categorize(**call) == expected


def first(table: str, text: str) -> int:
    """The row that decides; -1 where none does."""
    found = (re.search("|".join(row["patterns"]), text, re.VERBOSE) for row in DATA[table])
    return next((index for index, match in enumerate(found) if match), -1)


@pytest.mark.parametrize("table", ["own", "target", "op", "name"])
def test_no_pattern_is_dead(table):
    """Each pattern is found in a name above that its own row decides."""
    texts = [text.lower() for text, _ in rows({"op": OPS, "target": TARGETS}.get(table, NAMES))]
    if table == "name":
        texts = [text for text in texts if first("own", text) == -1]
    decided = [first(table, text) for text in texts]
    dead = []
    for index, row in enumerate(DATA[table]):
        own = [text for text, decision in zip(texts, decided, strict=True) if decision == index]
        dead += [
            pattern for pattern in row["patterns"] if not any(re.search(pattern, text, re.VERBOSE) for text in own)
        ]
    assert not dead


def test_every_category_of_a_rule_is_described_and_used():
    used = {row["category"] for table in ("hlo", "own", "target", "op", "name") for row in DATA[table]}
    assert used | {"uncategorised"} == set(categories())


def test_a_name_of_any_length_is_told_in_good_time():
    began = time.perf_counter()
    for part in ("a", "_", "dot_", "aten::", "flash_", "triton_poi_fused_cat"):
        name = part * 1_000_000
        categorize(name=name, op=name, target=name)
    assert time.perf_counter() - began < 10


@pytest.mark.skipif(not FILES, reason="no real traces beside the repository (../shared/traces)")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nearly_all_time_of_real_traces_has_a_category(path):
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ops = {
        event["args"]["External id"]: event["name"]
        for event in events
        if event.get("cat") == "cpu_op" and "External id" in event["args"]
    }
    time_of = Counter()
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            time_of[event["name"], ops.get(event["args"].get("External id"), "")] += event["dur"]
    unknown = [time for (name, op), time in time_of.items() if categorize(name=name, op=op)[0] == "uncategorised"]
    assert sum(unknown) < 0.05 * time_of.total()
